/*
 * fuzz_folder.c - any bytes as a folder: its config.json, its index and one file, through open,
 * inspect and dequantize.
 *
 * An input has four parts with a NUL between them: config.json, the index, the header of the file,
 * and its data. Without an index the file is model.safetensors, else a.safetensors. A config.json
 * that begins with an exclamation mark is hf_quant_config.json, without the mark.
 *
 * What must hold: a folder is refused by its content alone, with a message. Every stored tensor is
 * one tensor, or one part of one, or says how some of them are stored. What can be dequantized can
 * be inspected, and gives a folder that nothing describes as quantized; a dequantize that fails
 * leaves nothing.
 */
#include "support/fuzz_files.h"
#include "support/roles.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define INDEX_NAME "in/model.safetensors.index.json"

/* The next part of an input: up to a NUL, or all that is left. */
static struct bytes next_part(const uint8_t **at, size_t *left, bool is_last)
{
    struct bytes part = {NULL, 0};
    const uint8_t *end = is_last || *left == 0 ? NULL : memchr(*at, 0, *left);
    const size_t n = end ? (size_t)(end - *at) : *left;
    bytes_add(&part, *at, n);
    *at += n + (end != NULL);
    *left -= n + (end != NULL);
    return part;
}

static void remove_folder(const char *name)
{
    char path[1024], inner[2048];
    struct dirent *entry;
    (void)snprintf(path, sizeof path, "%s", own_path(name));
    DIR *folder = opendir(path);
    while (folder && (entry = readdir(folder)) != NULL) {
        (void)snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
        (void)unlink(inner);
    }
    if (folder)
        (void)closedir(folder);
    (void)rmdir(path);
}

static void write_part(const char *name, const struct bytes *part)
{
    if (part->n > 0)
        own_write(name, part);
}

static void write_folder(const uint8_t *data, size_t size)
{
    struct bytes config = next_part(&data, &size, false), index = next_part(&data, &size, false);
    struct bytes header = next_part(&data, &size, false), rest = next_part(&data, &size, true);
    struct bytes file = {NULL, 0};
    uint8_t length[8];
    for (size_t i = 0; i < sizeof length; i++)
        length[i] = (uint8_t)((uint64_t)header.n >> 8 * i);
    bytes_add(&file, length, sizeof length);
    bytes_add(&file, header.data, header.n);
    bytes_add(&file, rest.data, rest.n);
    promise(mkdir(own_path("in"), 0700) == 0, "a folder can be made");
    if (config.n > 1 && config.data[0] == '!')
        own_write("in/hf_quant_config.json", &(struct bytes){config.data + 1, config.n - 1});
    else
        write_part("in/config.json", &config);
    write_part(INDEX_NAME, &index);
    write_part(index.n > 0 ? "in/a.safetensors" : "in/model.safetensors", &file);
    free(config.data);
    free(index.data);
    free(header.data);
    free(rest.data);
    free(file.data);
}

static void check_refusal(enum qplan_status status, const struct qplan_error *err)
{
    promise(status == QPLAN_OK || (status == QPLAN_ERR_INVALID && err->message[0]),
            "a folder is refused by its content, with a message");
}

static void check_output(void)
{
    struct qplan_checkpoint *c;
    struct qplan_error err;
    promise(qplan_checkpoint_open(&c, own_path("out"), &err) == QPLAN_OK,
            "what dequantize writes can be opened");
    promise(!c->format && !qp_quantization_config(&c->source.listing),
            "nothing describes it as quantized");
    qplan_checkpoint_close(c);
}

static void try_commands(const struct qplan_checkpoint *c)
{
    static const struct qplan_run run = {.threads = 1, .memory_bytes = (uint64_t)8 << 20};
    struct qplan_report *report;
    struct qplan_error err = {.status = QPLAN_OK};
    check_roles(c);
    const enum qplan_status inspected = qplan_inspect(&report, c, NULL, &run, &err);
    check_refusal(inspected, &err);
    qplan_report_free(report);
    const enum qplan_status status =
        qplan_dequantize(&report, c, own_path("out"), NULL, &run, &err);
    check_refusal(status, &err);
    qplan_report_free(report);
    promise(own_count() == 1u + (status == QPLAN_OK), "dequantize leaves its output, or nothing");
    promise(status != QPLAN_OK || inspected == QPLAN_OK,
            "what can be dequantized can be inspected");
    if (status == QPLAN_OK)
        check_output();
    remove_folder("out");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct qplan_checkpoint *c;
    struct qplan_error err = {.status = QPLAN_OK};
    write_folder(data, size);
    const enum qplan_status status = qplan_checkpoint_open(&c, own_path("in"), &err);
    check_refusal(status, &err);
    if (getenv("QPLAN_FUZZ_SAY"))
        printf("open %s: %s\n", qplan_status_name(status), status ? err.message : "");
    if (status == QPLAN_OK) {
        try_commands(c);
        qplan_checkpoint_close(c);
    }
    remove_folder("in");
    return 0;
}
