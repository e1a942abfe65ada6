/*
 * fuzz_config.c - any text as the config.json of a folder: refused with a message, or edited so
 * that it is a config.json again, and taken back to where it was.
 */
#include "support/fuzz_files.h"

#include "lib/store/config.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const keys[] = {"quantization_config", "quantization", NULL};
static const char value[] = "{\"a\":[],\"b\":{},\"c\":[1,{\"d\":\"}\\\"\\\\\"}]}";

/* The config.json of these bytes, or NULL if it is refused. */
static struct qp_config *read_config(const struct bytes *text)
{
    struct qplan_error err = {.status = QPLAN_OK};
    struct qp_config *config;
    own_write(QP_CONFIG_NAME, text);
    if (qp_config_read(&config, own_path("."), QP_CONFIG_NAME, &err) == QPLAN_OK)
        return config;
    promise(err.status == QPLAN_ERR_INVALID && err.message[0], "a text is refused with a message");
    return NULL;
}

/* What an edit makes of a config; NULL keys take descriptions away. */
static struct qp_config *edit(const struct qp_config *config, const char *const *new_keys)
{
    struct qp_writer w;
    qp_writer_init(&w);
    promise(qp_config_edit(&w, config, new_keys, value, sizeof value - 1, NULL) == QPLAN_OK,
            "what was read can be edited");
    const struct bytes text = {w.data, w.n};
    struct qp_config *made = read_config(&text);
    promise(made, "what was edited can be read");
    qp_writer_free(&w);
    return made;
}

static bool has(const struct qp_config *config, const char *key)
{
    return qp_tree_member(&config->tree, config->tree.values, key) != NULL;
}

static bool is_same(const struct qp_config *a, const struct qp_config *b)
{
    return a->n_bytes == b->n_bytes && memcmp(a->text, b->text, a->n_bytes) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes text = {NULL, 0};
    bytes_add(&text, data, size);
    struct qp_config *config = read_config(&text);
    if (config) {
        const bool is_plain = !has(config, keys[0]) && !has(config, keys[1]);
        struct qp_config *made = edit(config, keys), *again = edit(made, keys);
        struct qp_config *back = edit(made, NULL);
        promise(has(made, keys[0]) && has(made, keys[1]), "an edit adds its members");
        promise(is_same(made, again), "the same edit again changes nothing");
        promise(!has(back, keys[0]) && !has(back, keys[1]), "descriptions are taken away");
        promise(!is_plain || is_same(config, back), "there and back is the same text");
        qp_config_free(back);
        qp_config_free(again);
        qp_config_free(made);
    }
    qp_config_free(config);
    free(text.data);
    return 0;
}
