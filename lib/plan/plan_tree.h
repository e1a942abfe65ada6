/*
 * plan_tree.h - the text of a plan document as values that can be walked in any order, and the
 * questions that the reader asks of them. Sixteen bytes a value: a plan has a hundred for a tensor.
 */
#ifndef QP_PLAN_TREE_H
#define QP_PLAN_TREE_H

#include "lib/base/json.h"

/* An object or an array is followed by what is inside; behind it all, after span, is the next. */
struct qp_plan_value {
    uint32_t key; /* of a member: where its key is in the text */
    uint32_t span : 28;
    uint32_t type : 4; /* an enum qp_json_type */
    union {
        uint64_t number;
        struct {
            uint32_t at; /* of a string: where it is in the text, with a NUL behind it */
            uint32_t n;  /* of an object or an array: how many members or elements */
        };
    };
};

struct qp_plan_tree {
    const char *name;        /* of the document, for messages */
    struct qplan_error *err; /* of all functions here */
    char *text;
    struct qp_plan_value *values; /* the first is the root */
    size_t n_values, cap;
};

/*
 * Reads strict JSON whose numbers are whole and whose strings have no U+0000; anything else is
 * INVALID, with the byte. The text may go; qp_plan_tree_free must be called in any case.
 */
enum qplan_status qp_plan_tree_read(struct qp_plan_tree *tree, const char *text, size_t n_bytes);
void qp_plan_tree_free(struct qp_plan_tree *tree);

/* ---- Walking -----------------------------------------------------------------------------------
 */

static inline const struct qp_plan_value *qp_plan_first(const struct qp_plan_value *container)
{
    return container + 1;
}

static inline const struct qp_plan_value *qp_plan_next(const struct qp_plan_value *value)
{
    return value + value->span;
}

#define QP_PLAN_MAX_KEYS 12

/* Sorts the members of an object into out by key; absent ones are NULL. Unknown and repeated keys
 * are refused, in the words of where. keys ends with NULL. */
enum qplan_status qp_plan_members(const struct qp_plan_tree *tree,
                                  const struct qp_plan_value *object, const char *where,
                                  const char *const *keys,
                                  const struct qp_plan_value *out[QP_PLAN_MAX_KEYS]);

/* The member of that key, or NULL. */
const struct qp_plan_value *qp_plan_member(const struct qp_plan_tree *tree,
                                           const struct qp_plan_value *object, const char *key);

/* ---- Questions: NULL, a value that is absent, is none of these ---------------------------------
 */

bool qp_plan_is_array(const struct qp_plan_value *value);
bool qp_plan_is_number(const struct qp_plan_value *value, uint64_t number);
bool qp_plan_is_string(const struct qp_plan_tree *tree, const struct qp_plan_value *value,
                       const char *text);
bool qp_plan_is_shape(const struct qp_plan_value *value, const uint64_t *shape, unsigned rank);

/* A number, 0 for anything else. */
uint64_t qp_plan_number(const struct qp_plan_value *value);

/* The text of a string, else NULL. */
const char *qp_plan_text(const struct qp_plan_tree *tree, const struct qp_plan_value *value);

/* Whether a value is absent, null or a string. */
bool qp_plan_may_be_text(const struct qp_plan_value *value);

/* The place of a string in a list of words that ends with NULL; what names it if it is not there.
 */
enum qplan_status qp_plan_word(const struct qp_plan_tree *tree, const struct qp_plan_value *value,
                               const char *what, const char *const *words, int *out);

/* A value as JSON, cut and safe to print. */
const char *qp_plan_show(char out[QP_QUOTED], const struct qp_plan_tree *tree,
                         const struct qp_plan_value *value);

/* INVALID: "WHAT: expected EXPECTED, found FOUND", which is quoted; without the last if NULL. */
enum qplan_status qp_plan_bad(const struct qp_plan_tree *tree, const char *what,
                              const char *expected, const char *found);

#endif
