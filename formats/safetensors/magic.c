/*
 * magic.c - naming files that are not safetensors: what people pass by mistake.
 *
 * Only looked at when a file was refused anyway, so a false alarm can only change the message.
 */
#include "internal.h"

#include <string.h>
#include <strings.h>

struct magic {
    const char *bytes;
    size_t n;
    const char *what, *hint;
};

#define MAGIC(bytes, what, hint)                                                                   \
    {                                                                                              \
        bytes, sizeof(bytes) - 1, what, hint                                                       \
    }

static const struct magic magics[] = {
    MAGIC("version https://git-lfs", "Git LFS pointer, not the file: run git lfs pull",
          "the pointer only names the file: git lfs pull fetches it"),
    MAGIC("GGUF", "a GGUF file, which is not supported: expected a safetensors file",
          "quantize the safetensors checkpoint that it was made from"),
    MAGIC(
        "PK\x03\x04",
        "a ZIP archive (PyTorch .pt or .bin), which is not supported: expected a safetensors file",
        "save the tensors as safetensors first"),
    MAGIC("\x89HDF\r\n\x1a\n", "an HDF5 file, which is not supported: expected a safetensors file",
          "save the tensors as safetensors first"),
    MAGIC("\x1f\x8b", "gzip data, which is not supported: expected a safetensors file",
          "unpack the file first"),
};

static enum qplan_status refuse(const char *what, const char *hint, const char *subject,
                                struct qplan_error *err)
{
    (void)qp_fail(err, QPLAN_ERR_INVALID, subject, "%s", what);
    qp_hint(err, "%s", hint);
    return QPLAN_ERR_INVALID;
}

/* Protocol 2 to 5 of Python's pickle: PROTO, its number, and an opcode that can begin a stream. */
static bool is_pickle(const char *bytes, size_t n)
{
    return n >= 3 && bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5 &&
           memchr("\x8a\x95}](cX\x8c", bytes[2], 8) != NULL;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static bool begins(const char *text, size_t n, const char *with)
{
    return n >= strlen(with) && strncasecmp(text, with, strlen(with)) == 0;
}

/* Error pages and answers of servers that were saved instead of the file. */
static enum qplan_status recognise_text(const char *text, size_t n, const char *subject,
                                        struct qplan_error *err)
{
    static const char hint[] = "a server's answer was saved in place of the file: download it anew";
    while (n > 0 && is_blank(*text)) {
        text++;
        n--;
    }
    if (begins(text, n, "<!doctype") || begins(text, n, "<html") || begins(text, n, "<?xml"))
        return refuse("looks like HTML text: expected a safetensors file", hint, subject, err);
    if (n > 1 && (*text == '{' || *text == '[') &&
        (is_blank(text[1]) || memchr("\"{[]}", text[1], 5)))
        return refuse("looks like JSON text: expected a safetensors file", hint, subject, err);
    return QPLAN_OK;
}

enum qplan_status qp_st_recognise(const char *bytes, size_t n, const char *subject,
                                  struct qplan_error *err)
{
    /* A length that happens to read like a signature, and then the header that it promises. */
    if (n > QP_ST_LENGTH_BYTES && bytes[QP_ST_LENGTH_BYTES] == '{' && bytes[4] == 0 &&
        memcmp(bytes + 4, bytes + 5, 3) == 0)
        return QPLAN_OK;
    for (size_t i = 0; i < sizeof magics / sizeof magics[0]; i++) {
        if (n >= magics[i].n && memcmp(bytes, magics[i].bytes, magics[i].n) == 0)
            return refuse(magics[i].what, magics[i].hint, subject, err);
    }
    if (is_pickle(bytes, n))
        return refuse("a Python pickle, which is not supported: expected a safetensors file",
                      "save the tensors as safetensors first", subject, err);
    return recognise_text(bytes, n, subject, err);
}
