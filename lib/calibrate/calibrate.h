/*
 * calibrate.h - the methods that choose the parameters of a set, as rows of a table.
 *
 * A calibrator looks at the values of all sets of a strip, once or in several passes, and keeps
 * what it has seen in a state: a block of memory for so many sets, zeroed before each pass. Values
 * come in tiles; the states of tiles are merged in the order of the tiles, for any number of
 * threads. How a set is cut into tiles is not known, and must not matter: so states are sums of
 * integers, or extremes. What a pass leaves for the next is what is known of each set. Behind the
 * last pass come the parameters. What verify may prove of the codes follows from the row, not from
 * the tool.
 *
 * A recipe is a calibrator that follows another tool step by step, rounding where that tool rounds,
 * so that its bytes are that tool's bytes. It makes the codes too. A tool that has several ways for
 * several schemes is several rows of one name.
 */
#ifndef QP_CALIBRATE_H
#define QP_CALIBRATE_H

#include "kernels/kernel.h"
#include "lib/base/arena.h"
#include "lib/base/error.h"

struct qp_recipe_codes;
struct qp_recipe_run;

/* The tensor at hand, and what chooses its parameters. */
struct qp_calibration {
    const struct qp_calibrator *calibrator;
    const struct qp_source_kernels *kernels;
    const struct qp_quantizer *quantizer;
    const struct qp_code_rule *rule;
    void *known; /* of each set that is seen, or finished, what the passes before have left */
    uint64_t set_elems; /* of the largest set */
    size_t short_set;   /* qp_short_set of the sets at hand */
    /* Of each of n_weights columns, which then begin anew; that of the first column of a tile. */
    const float *weights;
    size_t n_weights, first_weight;
};

/* Room for the parameters of sets, and how many of their values are not finite. */
struct qp_set_params {
    void *scale;
    int32_t *zero;
    uint64_t n_others;
};

/*
 * Tensors that are loaded as one, by the last word of their names. Where a tool gives such one
 * factor of their scales and one of them is missing, each has its own.
 */
#define QP_MOST_KIN 4

struct qp_kin_names {
    const char *names[QP_MOST_KIN];
    const char *parent; /* what the word before ends with; NULL = any */
};

struct qp_calibrator {
    const char *name;   /* of records; of a row with a parameter, what is before the colon */
    const char *method; /* that people choose: of a recipe that whose place it takes */
    bool can_clip;      /* may leave values outside the range of the codes */
    bool nearest;       /* every code is the nearest one for its parameters */
    bool from_source;   /* parameters follow from the source alone: a proof computes them again */
    bool finds_ranges;  /* its state is the range of each set, which devices can find too */
    bool either_sign;   /* scales of symmetric codes may be below 0 */
    bool takes_weights; /* errors may be weighted by the importance of columns */
    bool weighted;      /* and they are */
    bool rounds;        /* codes are made by a Hessian, when the parameters are stored */
    bool large_state;   /* of a set: ->choose needs that of one set alone, besides its ranges */
    bool wants_many;    /* sets of fewer values than the parameter are clipped too far */
    unsigned level;     /* how much is tried, where the row is one of several */
    uint64_t parameter; /* of a method that has one: NAME:PARAMETER */
    unsigned passes;    /* over all values of a set, before its parameters are known */
    unsigned bits;      /* of an element that a pass looks at, where that tells the passes */
    size_t state_bytes; /* of a set */
    size_t known_bytes; /* of a set, from one pass to the next */

    /* Adds the values of a tile to the state of its sets; returns how many are not finite. */
    uint64_t (*see)(const struct qp_calibration *c, unsigned pass, const struct qp_tile *tile,
                    const void *src, void *state);

    /* Adds the state of the n sets of a tile to those from `first` on, of n_all. */
    void (*merge)(const struct qp_calibration *c, unsigned pass, void *state, size_t n_all,
                  size_t first, const void *of_tile, size_t n);

    /*
     * Ends a pass. Behind the last one scale and zero point of all n sets are set, and the result
     * is n, or the first set whose scale does not fit its type; behind others it is n. Of a recipe
     * scales are what is stored of them, before a factor, and zero points of a scheme that stores
     * none are whatever its codes want to know of a set.
     */
    size_t (*finish)(const struct qp_calibration *c, unsigned pass, size_t n, void *state,
                     void *scale, int32_t *zero);

    /*
     * All passes at once for a tile that has all values of its sets, or NULL where nothing is
     * gained by it. The result is that of ->finish behind the last pass, with the same parameters.
     */
    size_t (*choose)(const struct qp_calibration *c, const struct qp_tile *tile, const void *src,
                     void *state, struct qp_set_params *chosen);

    /*
     * Of a recipe, else NULL: codes of a tile with these parameters, one byte each, in the place of
     * the quantizer's. Values that are not finite get some code.
     */
    void (*codes)(const struct qp_calibration *c, const struct qp_tile *tile, const void *src,
                  const void *scale, const int32_t *zero, uint8_t *codes);

    /* Of a recipe whose codes are made run by run in one way: that way (recipe.h). */
    void (*encode)(const struct qp_recipe_codes *to, const struct qp_recipe_run *run, float *values,
                   uint8_t *codes);

    /* Whether it makes codes of a scheme; of a method NULL = of any. */
    bool (*makes)(const struct qplan_scheme *scheme);

    /*
     * Of a recipe for scales with a factor: the factor of tensors of this type, whose largest size
     * of a value is `most`. 0 if the tool makes nothing of it that decodes. And which tensors have
     * one together, ended by a row without names; NULL = those that the layout says.
     */
    float (*factor)(enum qplan_dtype dtype, float most);
    const struct qp_kin_names *kin;
};

/* Passes over elements of so many bytes. */
static inline unsigned qp_calibrator_passes(const struct qp_calibrator *calibrator,
                                            size_t elem_bytes)
{
    return calibrator->bits ? (unsigned)elem_bytes * 8 / calibrator->bits : calibrator->passes;
}

/*
 * Ends a pass as ->finish does, but scales are then those that are stored (of_largest of the rule).
 * A recipe chooses these itself, and makes codes by them.
 */
size_t qp_calibrator_finish(const struct qp_calibrator *calibrator, const struct qp_calibration *c,
                            unsigned pass, size_t n, void *state, void *scale, int32_t *zero);

/*
 * The passes from `pass` on over a tile that has all values of its sets, one by one: what ->choose
 * does where it has no shorter way. The result is that of ->finish.
 */
size_t qp_calibrator_go(const struct qp_calibration *c, unsigned pass, const struct qp_tile *tile,
                        const void *src, void *state, const struct qp_set_params *chosen);

/* ->choose, with scales that are those that are stored, as for qp_calibrator_finish. */
size_t qp_calibrator_choose(const struct qp_calibration *c, const struct qp_tile *tile,
                            const void *src, void *state, struct qp_set_params *chosen);

/* The i-th method, or NULL behind the last. */
const struct qp_calibrator *qp_calibrator_at(size_t i);

/* Reads the name of a method, and its parameter; false if it is none. *out borrows the text. */
bool qp_calibrator_read(const char *text, struct qp_calibrator *out);

/* The method that a text names, also with "+importance", in the arena; NULL if it names none.
 * MEMORY.
 */
enum qplan_status qp_calibrator_make(const char *text, struct qp_arena *arena,
                                     const struct qp_calibrator **out, struct qplan_error *err);

/*
 * A method with "+positive" in its name, where no scale may be below 0, or "+importance", where
 * errors are weighted. In the arena; NULL when out of memory.
 */
const struct qp_calibrator *qp_calibrator_positive(const struct qp_calibrator *method,
                                                   struct qp_arena *arena);
const struct qp_calibrator *qp_calibrator_weigh(const struct qp_calibrator *method,
                                                struct qp_arena *arena);

/* The recipe of this name for a scheme, or NULL if there is none. */
const struct qp_calibrator *qp_recipe_find(const char *name, const struct qplan_scheme *scheme);

/*
 * Reads the method or the recipe that a record names for a scheme; false if it is none, or NULL, or
 * one that makes no codes of that scheme.
 */
bool qp_calibrator_recorded(const char *name, const struct qplan_scheme *scheme,
                            struct qp_calibrator *out);

/* Whether a record names a recipe; NULL names none. */
bool qp_is_recipe(const char *name);

/*
 * How far a scale that does not follow from the source alone may be from minmax's, in size: what a
 * proof can say of it. No search takes one that is farther.
 */
#define QP_SCALE_LEAST (1.0 / 256)
#define QP_SCALE_MOST  4.0

static inline bool qp_scale_is_near(double scale, double minmax)
{
    const double size = scale < 0 ? -scale : scale;
    return size >= minmax * QP_SCALE_LEAST && size <= minmax * QP_SCALE_MOST;
}

/* Whether a calibrator takes values of this type: no tool that has a recipe stores f64. */
static inline bool qp_calibrator_takes(const struct qp_calibrator *calibrator,
                                       enum qplan_dtype dtype)
{
    return !calibrator->codes || dtype != QPLAN_F64;
}

/* Whether it chooses scales that have scales: these are the largest sizes of sets. */
static inline bool qp_calibrator_nests(const struct qp_calibrator *calibrator)
{
    return calibrator->finds_ranges;
}

/*
 * Of sets of one row, from `first` on: how many there are up to the last, if that has fewer
 * elements than the others; else 0.
 */
static inline size_t qp_short_set(const struct qp_sets *sets, uint64_t first)
{
    const bool has_short = sets->n_bands == 1 && sets->row_len % sets->col_width != 0;
    return has_short ? (size_t)(sets->n_sets - first) : 0;
}

/* Bytes of the state of a set that a calibrator of one pass needs at the most. */
#define QP_MOST_STATE_BYTES (2 * sizeof(double))

/*
 * A state that several rows share: the range of each set, widened to 0, in working precision. That
 * of n sets is their least values, then from qp_ranges_most on their largest.
 */
void *qp_ranges_most(const struct qp_calibration *c, void *state, size_t n);
uint64_t qp_ranges_see(const struct qp_calibration *c, unsigned pass, const struct qp_tile *tile,
                       const void *src, void *state);
void qp_ranges_merge(const struct qp_calibration *c, unsigned pass, void *state, size_t n_all,
                     size_t first, const void *of_tile, size_t n);

extern const struct qp_calibrator qp_calibrate_minmax;
extern const struct qp_calibrator qp_calibrate_percentile, qp_calibrate_entropy, qp_calibrate_ldlq;

/* Reads P of percentile:P, above 50 and at most 100, with six digits behind the point at the most.
 */
bool qp_percentile_read(const char *text, struct qp_calibrator *out);

/* Reads BINS of entropy:BINS, which says how large a state is too. */
bool qp_entropy_read(const char *text, struct qp_calibrator *out);

extern const struct qp_calibrator qp_calibrate_mse[];
extern const struct qp_calibrator qp_recipe_llm_compressor, qp_recipe_llm_compressor_blocks,
    qp_recipe_gptqmodel, qp_recipe_mlx, qp_recipe_mlx_blocks, qp_recipe_bitsandbytes,
    qp_recipe_transformers, qp_recipe_modelopt, qp_recipe_comfy_int8, qp_recipe_comfy_fp8,
    qp_recipe_comfy_blocks;

#endif
