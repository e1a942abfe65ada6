/*
 * config.h - the config.json beside the files of a checkpoint: read as a tree, and edited as text,
 * so that every byte that is not meant stays as it is.
 */
#ifndef QP_STORE_CONFIG_H
#define QP_STORE_CONFIG_H

#include "lib/base/json_tree.h"

#include <sys/types.h>

#define QP_CONFIG_NAME       "config.json"
#define QP_MOST_CONFIG_BYTES 10000000u

struct qp_config {
    char *text; /* as the file has it */
    size_t n_bytes;
    mode_t mode; /* of the file */
    char shown[512];
    struct qp_tree tree; /* its root is an object */
};

/*
 * Reads the config.json of a folder, or a file of another name that says the same things; *out is
 * NULL if there is none. INVALID with the byte if it is not an object in strict JSON, or describes
 * its quantization twice or with a key twice.
 */
enum qplan_status qp_config_read(struct qp_config **out, const char *folder, const char *name,
                                 struct qplan_error *err);
void qp_config_free(struct qp_config *config);

/*
 * Writes the text with new members in the place of all that describe a quantization: value, which
 * is JSON without blanks, under each of the keys. keys end with NULL; NULL itself takes members
 * away and adds none.
 */
enum qplan_status qp_config_edit(struct qp_writer *w, const struct qp_config *config,
                                 const char *const *keys, const char *value, size_t n_value,
                                 struct qplan_error *err);

#endif
