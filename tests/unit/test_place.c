/*
 * Places: whatever the place, the shape, the cut and the instruction set, putting gives the bytes
 * that are found one bit at a time, and getting gives the values back.
 */
#include "place_cases.h"

#include "kernels/kernel.h"

/* What fails, in words; expected values alone do not tell. */
#define REQUIRE(condition, t)                                                                      \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail_msg("%s, %" PRIu64 " x %" PRIu64 ", %s: %s", (t)->row->name, (t)->m.rows,         \
                     (t)->m.cols, qplan_isa_name((t)->isa), #condition);                           \
    } while (0)

/* A matrix of random values, and what it is stored as. */
struct trial {
    const struct place_case *row;
    const struct qp_place *p;
    struct qp_matrix m;
    enum qplan_isa isa;
    uint64_t seed;
    unsigned char *values;
    struct stored stored;
};

static void trial_make(struct trial *t, const struct place_case *row, struct qp_matrix m)
{
    const size_t n = (size_t)(m.rows * m.cols) * value_bytes(&row->place);
    *t = (struct trial){row,           &row->place, m, QPLAN_ISA_SCALAR, 77 * m.rows + m.cols,
                        malloc(n + 1), {0}};
    assert_non_null(t->values);
    for (size_t i = 0; i < n; i++)
        t->values[i] = (unsigned char)random_bits(&t->seed);
    t->stored = stored_of(t->p, m, t->values);
}

static void trial_free(struct trial *t)
{
    free(t->values);
    stored_free(&t->stored);
}

/* Around the sizes of words, of blocks of lines, and of tiles; rows and columns alone. */
static const struct qp_matrix shapes[] = {
    {1, 1},   {1, 2},    {2, 1},    {3, 3},     {1, 7},     {7, 1},    {5, 8},    {8, 5},
    {31, 33}, {32, 64},  {64, 32},  {1, 300},   {300, 1},   {65, 129}, {129, 65}, {3, 1030},
    {127, 5}, {128, 16}, {130, 17}, {257, 131}, {131, 257}, {2, 2500}, {2500, 2},
};

static struct qp_rect whole(const struct trial *t)
{
    return (struct qp_rect){0, t->m.rows, 0, t->m.cols};
}

/* ---- Rectangles ------------------------------------------------------------------------------ */

/* The values of a rectangle, contiguous, which the caller frees. */
static unsigned char *values_of(const struct trial *t, const struct qp_rect *r)
{
    const size_t size = value_bytes(t->p), n = (size_t)r->n_cols * size;
    unsigned char *values = malloc((size_t)r->n_rows * n + 1);
    assert_non_null(values);
    for (uint64_t i = 0; i < r->n_rows; i++)
        memcpy(values + i * n, t->values + ((r->row + i) * t->m.cols + r->col) * size, n);
    return values;
}

/* The image of a rectangle, taken from the stored tensor by its runs. */
static void read_image(const struct trial *t, const struct qp_rect *r, unsigned char *image)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < qp_place_runs(t->p, t->m, r); i++) {
        const struct qp_place_run run = qp_place_run(t->p, t->m, r, i);
        REQUIRE(run.n_bytes > 0 && run.off + run.n_bytes <= t->stored.n_bytes, t);
        memcpy(image + n, t->stored.bytes + run.off, run.n_bytes);
        n += run.n_bytes;
    }
    REQUIRE(n == qp_place_image_bytes(t->p, t->m, r), t);
}

/*
 * Gets a rectangle from the stored tensor, of which there is the image of one around it, between
 * guard pages, and compares its values.
 */
static uint64_t get_inside(const struct trial *t, const struct qp_rect *around,
                           const struct qp_rect *r)
{
    const size_t n_image = (size_t)qp_place_image_bytes(t->p, t->m, around);
    const uint64_t n = r->n_rows * r->n_cols;
    struct guarded image = guarded_make(n_image), got = guarded_make(n * value_bytes(t->p));
    unsigned char *wanted = values_of(t, r);
    unsigned char *values = got.end - n * value_bytes(t->p);
    read_image(t, around, image.end - n_image);
    const uint64_t ragged =
        qp_place_get_in(t->p, t->m, around, r, t->isa, image.end - n_image, values);
    for (uint64_t i = 0; i < n; i++) {
        if (t->p->bits > 8)
            REQUIRE(value_at(t->p, values, i) == value_at(t->p, wanted, i), t);
        else
            REQUIRE(values[i] == read_back(t->p, value_at(t->p, wanted, i)), t);
    }
    free(wanted);
    guarded_free(&image);
    guarded_free(&got);
    return ragged;
}

static uint64_t get_and_compare(const struct trial *t, const struct qp_rect *r)
{
    return get_inside(t, r, r);
}

static void check_whole(struct trial *t)
{
    const struct qp_rect all = whole(t);
    struct guarded image = guarded_make(t->stored.n_bytes);
    unsigned char *to = image.end - t->stored.n_bytes;
    REQUIRE(qp_place_bytes(t->p, t->m) == t->stored.n_bytes, t);
    REQUIRE(qp_place_image_bytes(t->p, t->m, &all) == t->stored.n_bytes, t);
    REQUIRE(qp_place_runs(t->p, t->m, &all) == 1, t);
    memset(to, 0xa5, t->stored.n_bytes);
    qp_place_put(t->p, t->m, &all, t->isa, t->values, to);
    REQUIRE(memcmp(to, t->stored.bytes, t->stored.n_bytes) == 0, t);
    REQUIRE(get_and_compare(t, &all) == 0, t);
    guarded_free(&image);
}

/* ---- Cuts ------------------------------------------------------------------------------------ */

/* The end of a random piece that begins here: a multiple of the grain, or the end of all. */
static uint64_t random_end(uint64_t *seed, uint64_t begin, uint64_t end, uint64_t grain)
{
    const uint64_t most = (end - begin + grain - 1) / grain;
    const uint64_t next = begin + (1 + random_below(seed, most)) * grain;
    return next < end ? next : end;
}

/* Puts a rectangle and writes its image where it belongs; counts how often a byte is written. */
static void put_piece(const struct trial *t, const struct qp_rect *r, unsigned char *to,
                      unsigned char *times)
{
    const size_t n_image = (size_t)qp_place_image_bytes(t->p, t->m, r);
    struct guarded image = guarded_make(n_image);
    const unsigned char *from = image.end - n_image;
    unsigned char *values = values_of(t, r);
    memset(image.begin, 0xa5, (size_t)(image.end - image.begin));
    qp_place_put(t->p, t->m, r, t->isa, values, image.end - n_image);
    REQUIRE(image.end - n_image == image.begin || *(from - 1) == 0xa5, t);
    for (uint64_t i = 0; i < qp_place_runs(t->p, t->m, r); i++) {
        const struct qp_place_run run = qp_place_run(t->p, t->m, r, i);
        memcpy(to + run.off, from, run.n_bytes);
        from += run.n_bytes;
        for (uint64_t k = 0; k < run.n_bytes; k++)
            times[run.off + k]++;
    }
    free(values);
    guarded_free(&image);
}

static void check_cut(struct trial *t)
{
    const struct qp_rect all = whole(t);
    uint64_t grain_rows, grain_cols, row_end;
    unsigned char *bytes = malloc(t->stored.n_bytes + 1);
    unsigned char *together =
        malloc(t->stored.n_bytes + 1); /* put by piece, not written by piece */
    unsigned char *times = calloc(t->stored.n_bytes + 1, 1);
    assert_true(bytes && together && times);
    qp_place_grain(t->p, &grain_rows, &grain_cols);
    for (uint64_t row = 0; row < t->m.rows; row = row_end) {
        row_end = random_end(&t->seed, row, t->m.rows, grain_rows);
        for (uint64_t col = 0, col_end; col < t->m.cols; col = col_end) {
            col_end = random_end(&t->seed, col, t->m.cols, grain_cols);
            const struct qp_rect r = {row, row_end - row, col, col_end - col};
            put_piece(t, &r, bytes, times);
            unsigned char *values = values_of(t, &r);
            if (!t->p->swizzled)
                qp_place_put_in(t->p, t->m, &all, &r, t->isa, values, together);
            free(values);
        }
    }
    for (size_t i = 0; i < t->stored.n_bytes; i++)
        REQUIRE(times[i] == 1, t);
    REQUIRE(memcmp(bytes, t->stored.bytes, t->stored.n_bytes) == 0, t);
    REQUIRE(t->p->swizzled || memcmp(together, t->stored.bytes, t->stored.n_bytes) == 0, t);
    free(bytes);
    free(together);
    free(times);
}

static struct qp_rect random_rect(struct trial *t)
{
    struct qp_rect r = {.row = random_below(&t->seed, t->m.rows),
                        .col = random_below(&t->seed, t->m.cols)};
    r.n_rows = 1 + random_below(&t->seed, t->m.rows - r.row);
    r.n_cols = 1 + random_below(&t->seed, t->m.cols - r.col);
    return r;
}

static void check_any(struct trial *t)
{
    for (int i = 0; i < 8; i++) {
        const struct qp_rect r = random_rect(t);
        struct qp_rect around = {.row = random_below(&t->seed, r.row + 1),
                                 .col = random_below(&t->seed, r.col + 1)};
        around.n_rows = r.row + r.n_rows - around.row;
        around.n_cols = r.col + r.n_cols - around.col;
        around.n_rows += random_below(&t->seed, t->m.rows - around.row - around.n_rows + 1);
        around.n_cols += random_below(&t->seed, t->m.cols - around.col - around.n_cols + 1);
        REQUIRE(get_and_compare(t, &r) == 0, t);
        REQUIRE(t->p->swizzled || get_inside(t, &around, &r) == 0, t);
    }
}

static void check_empty(struct trial *t)
{
    const struct qp_rect empty[] = {{0, 0, 0, t->m.cols}, {t->m.rows, 0, t->m.cols, 0}};
    for (size_t i = 0; i < COUNT(empty); i++) {
        REQUIRE(qp_place_runs(t->p, t->m, &empty[i]) == 0, t);
        REQUIRE(qp_place_image_bytes(t->p, t->m, &empty[i]) == 0, t);
        qp_place_put(t->p, t->m, &empty[i], t->isa, NULL, NULL);
        REQUIRE(qp_place_get(t->p, t->m, &empty[i], t->isa, NULL, NULL) == 0, t);
    }
    REQUIRE(qp_place_bytes(t->p, (struct qp_matrix){0, t->m.cols}) == 0, t);
    REQUIRE(qp_place_bytes(t->p, (struct qp_matrix){t->m.rows, 0}) == 0, t);
}

/* ---- Filling --------------------------------------------------------------------------------- */

/* Flips random filling bits of some lines; returns how many lines. */
static uint64_t spoil(struct trial *t)
{
    const uint64_t n_lines = t->p->swizzled  ? (t->m.rows + 127) / 128 * 128
                             : t->p->columns ? t->m.cols
                                             : t->m.rows;
    unsigned char *bad = calloc(n_lines, 1);
    uint64_t n_bad = 0;
    assert_non_null(bad);
    for (size_t i = 0; i < t->stored.n_bytes; i++) {
        const unsigned flip = t->stored.filling[i] & (unsigned)random_bits(&t->seed);
        if (random_below(&t->seed, 3) == 0) {
            t->stored.bytes[i] ^= (unsigned char)flip;
            bad[t->stored.line[i]] |= flip != 0;
        }
    }
    for (uint64_t line = 0; line < n_lines; line++)
        n_bad += bad[line];
    free(bad);
    return n_bad;
}

/* A cut between lines counts each of them once; what does not reach their ends counts none. */
static void check_counts(struct trial *t, uint64_t n_bad)
{
    const bool columns = t->p->columns;
    const uint64_t row = columns ? 0 : random_below(&t->seed, t->m.rows);
    const uint64_t col = columns ? random_below(&t->seed, t->m.cols) : 0;
    const struct qp_rect before = {0, columns ? t->m.rows : row, 0, columns ? col : t->m.cols};
    const struct qp_rect behind = {row, t->m.rows - row, col, t->m.cols - col};
    const struct qp_rect inner = {0, t->m.rows - columns, 0, t->m.cols - !columns};
    uint64_t counted = get_and_compare(t, &behind);
    if (before.n_rows > 0 && before.n_cols > 0)
        counted += get_and_compare(t, &before);
    REQUIRE(counted == n_bad, t);
    if (inner.n_rows > 0 && inner.n_cols > 0)
        REQUIRE(get_and_compare(t, &inner) == 0, t);
}

/* Filling that is not what it should be is counted once a line, and changes no value. */
static void check_filling(struct trial *t)
{
    const struct qp_rect all = whole(t);
    unsigned char *good = malloc(t->stored.n_bytes);
    assert_non_null(good);
    memcpy(good, t->stored.bytes, t->stored.n_bytes);
    const uint64_t n_bad = spoil(t);
    REQUIRE(get_and_compare(t, &all) == n_bad, t);
    if (!t->p->swizzled)
        check_counts(t, n_bad);
    memcpy(t->stored.bytes, good, t->stored.n_bytes);
    free(good);
}

/* Of a swizzled matrix, each filling byte is looked at by one rectangle of a cut. */
static void test_filling_of_tiles(void **state)
{
    struct trial t;
    (void)state;
    trial_make(&t, place_case("swizzled"), (struct qp_matrix){130, 6});
    const struct qp_rect top = {0, 100, 0, 6}, left = {100, 30, 0, 3}, right = {100, 30, 3, 3};
    for (size_t i = 0; i < t.stored.n_bytes; i++) {
        if (!t.stored.filling[i])
            continue;
        t.stored.bytes[i] = 1;
        assert_int_equal(get_and_compare(&t, &top) + get_and_compare(&t, &left) +
                             get_and_compare(&t, &right),
                         1);
        t.stored.bytes[i] = 0;
    }
    trial_free(&t);
}

/* ---- Overlap --------------------------------------------------------------------------------- */

static void check_in_place(struct trial *t)
{
    const struct qp_rect all = whole(t);
    const size_t n = (size_t)(t->m.rows * t->m.cols) * value_bytes(t->p);
    if (t->p->columns || t->p->interleaved || t->p->swizzled)
        return;
    if (t->stored.n_bytes / t->m.rows > t->m.cols * value_bytes(t->p))
        return;
    for (size_t distance = 0; distance < 40; distance += 13) {
        struct guarded buffer = guarded_make(n + distance);
        unsigned char *image = buffer.end - n - distance;
        memcpy(image + distance, t->values, n);
        qp_place_put(t->p, t->m, &all, t->isa, image + distance, image);
        REQUIRE(memcmp(image, t->stored.bytes, t->stored.n_bytes) == 0, t);
        guarded_free(&buffer);
    }
    /* And back, from behind the end of the values: no value reaches a byte before it is read. */
    if (t->p->bits > 8)
        return;
    struct guarded buffer = guarded_make(n + 64);
    unsigned char *values = buffer.end - n - 64;
    memcpy(buffer.end - t->stored.n_bytes, t->stored.bytes, t->stored.n_bytes);
    (void)qp_place_get(t->p, t->m, &all, t->isa, buffer.end - t->stored.n_bytes, values);
    for (size_t i = 0; i < n; i++)
        REQUIRE(values[i] == read_back(t->p, value_at(t->p, t->values, i)), t);
    guarded_free(&buffer);
}

/* ---- Flat ranges ----------------------------------------------------------------------------- */

static void check_flat(struct trial *t)
{
    const size_t size = value_bytes(t->p);
    const uint64_t n_all = t->m.rows * t->m.cols;
    uint64_t grain_rows, grain_cols;
    qp_place_grain(t->p, &grain_rows, &grain_cols);
    if (t->p->columns || t->p->interleaved || t->p->swizzled)
        return;
    for (int i = 0; i < 8; i++) {
        struct qp_flat_range f = {t->m, random_below(&t->seed, n_all), 0};
        f.n = 1 + random_below(&t->seed, n_all - f.elem);
        const struct qp_place_run run = qp_flat_run(t->p, &f);
        unsigned char *values = malloc(f.n * size), *image = malloc(run.n_bytes);
        assert_true(values && image);
        REQUIRE(run.off + run.n_bytes <= t->stored.n_bytes, t);
        REQUIRE(qp_flat_get(t->p, &f, t->isa, t->stored.bytes + run.off, values) == 0, t);
        for (uint64_t k = 0; k < f.n; k++)
            REQUIRE(value_at(t->p, values, k) == value_at(t->p, t->values, f.elem + k), t);
        /* What is put must begin and end with words: then the words are the stored ones. */
        f.elem -= f.elem % t->m.cols % grain_cols;
        f.n = n_all - f.elem;
        const struct qp_place_run rest = qp_flat_run(t->p, &f);
        image = realloc(image, rest.n_bytes);
        assert_non_null(image);
        qp_flat_put(t->p, &f, t->isa, t->values + f.elem * size, image);
        REQUIRE(rest.off + rest.n_bytes == t->stored.n_bytes, t);
        REQUIRE(memcmp(image, t->stored.bytes + rest.off, rest.n_bytes) == 0, t);
        free(values);
        free(image);
    }
}

static void test_flat_rects(void **state)
{
    static const struct {
        uint64_t elem, n;
        unsigned n_rects;
        struct qp_rect rects[3];
    } cases[] = {
        {0, 0, 0, {{0}}},
        {3, 2, 1, {{0, 1, 3, 2}}},
        {0, 10, 1, {{0, 1, 0, 10}}},
        {10, 40, 1, {{1, 4, 0, 10}}},
        {7, 5, 2, {{0, 1, 7, 3}, {1, 1, 0, 2}}},
        {7, 35, 3, {{0, 1, 7, 3}, {1, 3, 0, 10}, {4, 1, 0, 2}}},
        {20, 25, 2, {{2, 2, 0, 10}, {4, 1, 0, 5}}},
        {15, 35, 2, {{1, 1, 5, 5}, {2, 3, 0, 10}}},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct qp_flat_range range = {{5, 10}, cases[i].elem, cases[i].n};
        struct qp_rect rects[3];
        assert_int_equal(qp_flat_rects(&range, rects), cases[i].n_rects);
        assert_memory_equal(rects, cases[i].rects, cases[i].n_rects * sizeof rects[0]);
    }
}

/* ---- Sizes that only a file system could have --------------------------------------------------
 */

#define P2(n) (UINT64_C(1) << (n))

static void test_far_away(void **state)
{
    static const struct {
        const char *name;
        struct qp_matrix m;
        struct qp_rect rect;
        uint64_t n_bytes, n_runs;
        struct qp_place_run first;
    } cases[] = {
        {"int4", {1, P2(62)}, {0, 1, P2(62) - 3, 3}, P2(61), 1, {P2(61) - 2, 2}},
        {"int7",
         {P2(31), P2(31)},
         {P2(31) - 1, 1, P2(31) - 8, 8},
         7 * P2(59),
         1,
         {7 * P2(59) - 7, 7}},
        {"ct3", {2, P2(61)}, {1, 1, P2(60), 32}, 3 * P2(59), 1, {9 * P2(57), 12}},
        {"gptq4", {P2(30), P2(32)}, {5, 7, P2(31), 16}, P2(61), 2, {P2(60) + 20, 28}},
        {"awq4", {P2(32), P2(30)}, {P2(31), 64, P2(29), 3}, P2(61), 3, {P2(60) + P2(30), 32}},
        {"ct4-zero", {P2(60), 3}, {P2(60) - 8, 8, 1, 2}, 3 * P2(59), 1, {3 * P2(59) - 8, 8}},
        {"plain16", {1, P2(62) - 1}, {0, 1, P2(62) - 2, 1}, P2(63) - 2, 1, {P2(63) - 4, 2}},
        {"swizzled",
         {P2(31), P2(31)},
         {P2(31) - 128, 128, 0, 8},
         P2(62),
         1,
         {P2(62) - P2(38), 1024}},
        {"ct4", {P2(62), 1}, {0, 1, 0, 1}, UINT64_MAX, 1, {0, 4}},
        {"swizzled", {1, P2(62)}, {0, 1, 0, 1}, UINT64_MAX, 1, {0, 512}},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct qp_place *p = &place_case(cases[i].name)->place;
        const struct qp_place_run run = qp_place_run(p, cases[i].m, &cases[i].rect, 0);
        assert_int_equal(qp_place_bytes(p, cases[i].m), cases[i].n_bytes);
        assert_int_equal(qp_place_runs(p, cases[i].m, &cases[i].rect), cases[i].n_runs);
        assert_int_equal(run.off, cases[i].first.off);
        assert_int_equal(run.n_bytes, cases[i].first.n_bytes);
    }
}

/* ---- Every place ----------------------------------------------------------------------------- */

static void check_all(struct trial *t)
{
    check_whole(t);
    check_cut(t);
    check_any(t);
    check_empty(t);
    check_in_place(t);
    check_flat(t);
    check_filling(t);
}

/* Every place and shape; with values of 4 bits, which have kernels, every level of the CPU. */
static void test_every_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(place_cases); i++) {
        const bool has_kernels = place_cases[i].place.bits == 4;
        const enum qplan_isa most = has_kernels ? qp_isa_detect() : QPLAN_ISA_SCALAR;
        for (size_t k = 0; k < COUNT(shapes); k++) {
            struct trial t;
            trial_make(&t, &place_cases[i], shapes[k]);
            for (t.isa = QPLAN_ISA_SCALAR; t.isa <= most; t.isa++)
                check_all(&t);
            trial_free(&t);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_place),
        cmocka_unit_test(test_filling_of_tiles),
        cmocka_unit_test(test_flat_rects),
        cmocka_unit_test(test_far_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
