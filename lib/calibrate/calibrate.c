/*
 * calibrate.c - the tables of calibrators: the methods that people choose, and the recipes of other
 * tools that take their place.
 */
#include "calibrate.h"

#include "kernels/codes/largest.h"
#include "lib/base/text.h"

#include <float.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* How each is written; one with a parameter reads it. */
static const struct {
    const char *shown;
    const struct qp_calibrator *row;
    bool (*read)(const char *parameter, struct qp_calibrator *out);
} methods[] = {
    {"minmax", &qp_calibrate_minmax, NULL},
    {"mse[:fast]", &qp_calibrate_mse[0], NULL},
    {"mse:best", &qp_calibrate_mse[1], NULL},
    {"mse:exact", &qp_calibrate_mse[2], NULL},
    {"percentile:P", &qp_calibrate_percentile, qp_percentile_read},
    {"entropy[:BINS]", &qp_calibrate_entropy, qp_entropy_read},
    {"ldlq", &qp_calibrate_ldlq, NULL},
};

static const struct qp_calibrator *const recipes[] = {
    &qp_recipe_llm_compressor, &qp_recipe_llm_compressor_blocks,
    &qp_recipe_gptqmodel,      &qp_recipe_mlx,
    &qp_recipe_mlx_blocks,     &qp_recipe_bitsandbytes,
    &qp_recipe_transformers,   &qp_recipe_modelopt,
    &qp_recipe_comfy_int8,     &qp_recipe_comfy_fp8,
    &qp_recipe_comfy_blocks,
};

/* What records say of a method behind its name. */
#define POSITIVE "+positive"
#define WEIGHTED "+importance"

/* Shorter names. */
static const struct {
    const char *name, *stands_for;
} aliases[] = {{"mse", "mse:fast"}, {"entropy", "entropy:2048"}};

const struct qp_calibrator *qp_calibrator_at(size_t i)
{
    return i < COUNT(methods) ? methods[i].row : NULL;
}

bool qp_calibrator_read(const char *text, struct qp_calibrator *out)
{
    for (size_t i = 0; i < COUNT(aliases); i++)
        text = strcmp(text, aliases[i].name) == 0 ? aliases[i].stands_for : text;
    for (size_t i = 0; i < COUNT(methods); i++) {
        const char *name = methods[i].row->name;
        const size_t n = strlen(name);
        const bool is_it = methods[i].read ? strncmp(text, name, n) == 0 && text[n] == ':'
                                           : strcmp(text, name) == 0;
        if (!is_it)
            continue;
        *out = *methods[i].row;
        out->name = text;
        out->method = text;
        return !methods[i].read || methods[i].read(text + n + 1, out);
    }
    return false;
}

static void make_positive(struct qp_calibrator *method)
{
    method->either_sign = false;
}

static void make_weighted(struct qp_calibrator *method)
{
    method->weighted = true;
    method->from_source = false;
}

/* Takes a suffix off a text, if it begins with it and a method may have it. */
static bool take_suffix(const char **text, const char *suffix, bool may_have)
{
    const size_t n = strlen(suffix);
    const bool is_there = may_have && strncmp(*text, suffix, n) == 0;
    *text += is_there ? n : 0;
    return is_there;
}

/* A method with what is different of it, in its name too. */
static const struct qp_calibrator *make(const struct qp_calibrator *method, bool positive,
                                        bool weighted, struct qp_arena *arena)
{
    static const char *const suffixes[2][2] = {{"", WEIGHTED}, {POSITIVE, POSITIVE WEIGHTED}};
    struct qp_calibrator made = *method;
    const size_t n = strcspn(method->name, "+");
    const bool says = weighted && method->takes_weights; /* others always are, or never */
    made.name = qp_arena_join(arena, method->name, n, suffixes[positive][says]);
    made.method = qp_arena_join(arena, method->name, n, suffixes[false][says]);
    if (positive)
        make_positive(&made);
    if (weighted)
        make_weighted(&made);
    return made.name && made.method ? qp_arena_copy(arena, &made, 1, sizeof made) : NULL;
}

const struct qp_calibrator *qp_calibrator_positive(const struct qp_calibrator *method,
                                                   struct qp_arena *arena)
{
    return make(method, true, method->weighted, arena);
}

const struct qp_calibrator *qp_calibrator_weigh(const struct qp_calibrator *method,
                                                struct qp_arena *arena)
{
    return make(method, strstr(method->name, POSITIVE) != NULL, true, arena);
}

enum qplan_status qp_calibrator_make(const char *text, struct qp_arena *arena,
                                     const struct qp_calibrator **out, struct qplan_error *err)
{
    const size_t n = strcspn(text, "+");
    const bool weighted = strcmp(text + n, WEIGHTED) == 0;
    const char *name = qp_arena_join(arena, text, n, "");
    struct qp_calibrator made;
    *out = NULL;
    if (!name)
        return qp_fail_memory(err, "calibrate", n);
    if (!qp_calibrator_read(name, &made) || (text[n] && !(weighted && made.takes_weights)))
        return QPLAN_OK;
    *out = make(&made, false, weighted, arena);
    return *out ? QPLAN_OK : qp_fail_memory(err, "calibrate", sizeof made);
}

const struct qp_calibrator *qp_recipe_find(const char *name, const struct qplan_scheme *scheme)
{
    for (size_t i = 0; i < COUNT(recipes); i++) {
        if (strcmp(recipes[i]->name, name) == 0 && recipes[i]->makes(scheme))
            return recipes[i];
    }
    return NULL;
}

bool qp_calibrator_recorded(const char *name, const struct qplan_scheme *scheme,
                            struct qp_calibrator *out)
{
    const struct qp_calibrator *recipe = name ? qp_recipe_find(name, scheme) : NULL;
    const size_t n = name ? strcspn(name, "+") : 0;
    char method[64];
    if (recipe)
        *out = *recipe;
    if (recipe || n == 0 || n >= sizeof method)
        return recipe != NULL;
    memcpy(method, name, n);
    method[n] = '\0';
    /* A record has no short name. */
    if (!qp_calibrator_read(method, out) || strcmp(out->name, method) != 0 ||
        (out->makes && !out->makes(scheme)))
        return false;
    out->name = out->method = name;
    name += n;
    if (take_suffix(&name, POSITIVE, out->either_sign))
        make_positive(out);
    if (take_suffix(&name, WEIGHTED, out->takes_weights))
        make_weighted(out);
    return *name == '\0';
}

bool qp_is_recipe(const char *name)
{
    size_t i = 0;
    while (name && i < COUNT(recipes) && strcmp(recipes[i]->name, name) != 0)
        i++;
    return name && i < COUNT(recipes);
}

bool qplan_calibrator_is(const char *text)
{
    struct qp_calibrator made;
    return qp_calibrator_read(text, &made);
}

/* Values of the largest code, of steps; n, or the first whose product with a code is not finite. */
static size_t store_largest(const struct qp_calibration *c, size_t n, void *scale)
{
    const enum qplan_dtype work = c->kernels->work->work;
    const float q_max = (float)c->rule->q_max;
    size_t i = 0;
    qp_times_f32(work, n, q_max, scale);
    while (i < n && (work == QPLAN_F64 ? ((double *)scale)[i] : (double)((float *)scale)[i]) <=
                        (double)(FLT_MAX / q_max))
        i++;
    return i;
}

size_t qp_calibrator_finish(const struct qp_calibrator *calibrator, const struct qp_calibration *c,
                            unsigned pass, size_t n, void *state, void *scale, int32_t *zero)
{
    const size_t good = calibrator->finish(c, pass, n, state, scale, zero);
    const bool is_last = pass + 1 == qp_calibrator_passes(calibrator, c->kernels->elem_bytes);
    return is_last && c->rule->of_largest && !calibrator->codes ? store_largest(c, good, scale)
                                                                : good;
}

size_t qp_calibrator_go(const struct qp_calibration *c, unsigned pass, const struct qp_tile *tile,
                        const void *src, void *state, const struct qp_set_params *chosen)
{
    const size_t n = qp_tile_sets(tile);
    size_t good = n;
    for (; good == n && pass < qp_calibrator_passes(c->calibrator, c->kernels->elem_bytes);
         pass++) {
        memset(state, 0, n * c->calibrator->state_bytes);
        (void)c->calibrator->see(c, pass, tile, src, state);
        good = c->calibrator->finish(c, pass, n, state, chosen->scale, chosen->zero);
    }
    return good;
}

size_t qp_calibrator_choose(const struct qp_calibration *c, const struct qp_tile *tile,
                            const void *src, void *state, struct qp_set_params *chosen)
{
    const size_t good = c->calibrator->choose(c, tile, src, state, chosen);
    return c->rule->of_largest ? store_largest(c, good, chosen->scale) : good;
}

const char *qplan_calibrator_name(size_t i)
{
    return i < COUNT(methods) ? methods[i].shown : NULL;
}
