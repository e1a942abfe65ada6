/*
 * json_tree.h - a JSON text as values that can be walked in any order, and the questions that
 * readers ask of them. Sixteen bytes a value: a plan document has a hundred for a tensor.
 */
#ifndef QP_BASE_JSON_TREE_H
#define QP_BASE_JSON_TREE_H

#include "json.h"

/* An object or an array is followed by what is inside; behind it all, after span, is the next. */
struct qp_tree_value {
    uint32_t key; /* of a member: where its key is in the text */
    uint32_t span : 28;
    uint32_t type : 4; /* an enum qp_json_type, or QP_TREE_LITERAL */
    union {
        uint64_t number;
        struct {
            uint32_t at; /* of a string: where it is in the text, with a NUL behind it; of a
                          * literal likewise, without one */
            uint32_t n;  /* of an object or an array: how many members or elements; of a literal:
                          * its bytes */
        };
    };
};

struct qp_tree {
    const char *name;        /* of the document, for messages */
    struct qplan_error *err; /* of all functions here */
    unsigned max_depth;      /* of objects and arrays in each other; 0 = 8 */
    bool any_numbers;        /* one that is not whole is a literal, not a fault */
    char *text;
    struct qp_tree_value *values; /* the first is the root */
    size_t n_values, cap;
};

/* The type of a number that is not whole, negative, or above 2^63-1: only its text is known. */
#define QP_TREE_LITERAL 15

/*
 * Reads strict JSON whose numbers are whole, unless any are allowed, and whose strings have no
 * U+0000; anything else is INVALID, with the byte. The text may go; qp_tree_free must be called in
 * any case.
 */
enum qplan_status qp_tree_read(struct qp_tree *tree, const char *text, size_t n_bytes);
void qp_tree_free(struct qp_tree *tree);

/* ---- Walking -----------------------------------------------------------------------------------
 */

static inline const struct qp_tree_value *qp_tree_first(const struct qp_tree_value *container)
{
    return container + 1;
}

static inline const struct qp_tree_value *qp_tree_next(const struct qp_tree_value *value)
{
    return value + value->span;
}

#define QP_TREE_MAX_KEYS 16

/* Sorts the members of an object into out by key; absent ones are NULL. Unknown and repeated keys
 * are refused, in the words of where. keys ends with NULL. */
enum qplan_status qp_tree_members(const struct qp_tree *tree, const struct qp_tree_value *object,
                                  const char *where, const char *const *keys,
                                  const struct qp_tree_value *out[QP_TREE_MAX_KEYS]);

/* The key of a member. */
static inline const char *qp_tree_key(const struct qp_tree *tree,
                                      const struct qp_tree_value *member)
{
    return tree->text + member->key;
}

/* The member of that key, the first of several, or NULL; also if the value is no object or NULL. */
const struct qp_tree_value *qp_tree_member(const struct qp_tree *tree,
                                           const struct qp_tree_value *object, const char *key);

/* ---- Questions: NULL, a value that is absent, is none of these ---------------------------------
 */

bool qp_tree_is_null(const struct qp_tree_value *value);
bool qp_tree_is_object(const struct qp_tree_value *value);
bool qp_tree_is_true(const struct qp_tree_value *value);
bool qp_tree_is_bool(const struct qp_tree_value *value);
bool qp_tree_is_array(const struct qp_tree_value *value);
bool qp_tree_is_number(const struct qp_tree_value *value, uint64_t number);
bool qp_tree_is_string(const struct qp_tree *tree, const struct qp_tree_value *value,
                       const char *text);
bool qp_tree_is_shape(const struct qp_tree_value *value, const uint64_t *shape, unsigned rank);

/* Whether a value is a literal that is written so. */
bool qp_tree_is_literal(const struct qp_tree *tree, const struct qp_tree_value *value,
                        const char *text);

/* A number, 0 for anything else. */
uint64_t qp_tree_number(const struct qp_tree_value *value);

/* The text of a string, else NULL. */
const char *qp_tree_text(const struct qp_tree *tree, const struct qp_tree_value *value);

/* Whether a value is absent, null or a string. */
bool qp_tree_may_be_text(const struct qp_tree_value *value);

/* The place of a string in a list of words that ends with NULL; what names it if it is not there.
 */
enum qplan_status qp_tree_word(const struct qp_tree *tree, const struct qp_tree_value *value,
                               const char *what, const char *const *words, int *out);

/* A value as JSON, cut and safe to print. */
const char *qp_tree_show(char out[QP_QUOTED], const struct qp_tree *tree,
                         const struct qp_tree_value *value);

/* INVALID: "WHAT: expected EXPECTED, found FOUND", which is quoted; without the last if NULL. */
enum qplan_status qp_tree_bad(const struct qp_tree *tree, const char *what, const char *expected,
                              const char *found);

#endif
