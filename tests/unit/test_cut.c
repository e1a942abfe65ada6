/*
 * test_cut.c - cutting tensors into strips, pieces and tiles: random shapes of every rank and
 * granularity, both widths of codes, tiny limits and large ones. Every element is covered once, no
 * set is torn, nothing is larger than allowed, no two writes share a byte.
 */
#include "support.h"

#include "lib/run/cut.h"

#define MOST_ELEMS 6000

/* A tensor and how it is cut. */
struct cut {
    uint64_t shape[5];
    unsigned rank;
    struct qplan_scheme scheme;
    struct qp_sets sets;
    struct qp_limits limits;
    size_t elem_bytes;
    uint64_t grain; /* codes that fill whole words */
};

static char described[256];

static const char *describe(const struct cut *cut)
{
    char scheme[QPLAN_SCHEME_TEXT];
    size_t n = 0;
    (void)qplan_scheme_format(&cut->scheme, scheme);
    for (unsigned i = 0; i < cut->rank; i++)
        n += (size_t)snprintf(described + n, sizeof described - n, "%s%" PRIu64, i ? "x" : "",
                              cut->shape[i]);
    (void)snprintf(described + n, sizeof described - n,
                   " %s, limits %" PRIu64 " elements %" PRIu64 " sets", scheme, cut->limits.elems,
                   cut->limits.sets);
    return described;
}

#define REQUIRE(condition, cut)                                                                    \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail_msg("%s: %s", #condition, describe(cut));                                         \
    } while (0)

/* ---- What is right --------------------------------------------------------------------------- */

static uint64_t set_of(const struct cut *cut, uint64_t elem)
{
    return set_of_element(&cut->scheme, cut->shape, cut->rank, elem);
}

/* The words of the code of an element: rows of the last axis begin with words of their own. */
static uint64_t words_of(const struct cut *cut, uint64_t elem)
{
    const uint64_t last = cut->shape[cut->rank - 1], across = (last + cut->grain - 1) / cut->grain;
    return elem / last * across + elem % last / cut->grain;
}

/* ---- Random tensors -------------------------------------------------------------------------- */

static void pick_shape(struct cut *cut, uint64_t *seed)
{
    static const uint64_t extents[] = {1, 1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 31, 64, 97, 128, 211};
    uint64_t n_elems = 1;
    cut->rank = 1 + (unsigned)random_below(seed, 5);
    for (unsigned i = 0; i < cut->rank; i++) {
        cut->shape[i] = extents[random_below(seed, COUNT(extents))];
        if (n_elems * cut->shape[i] > MOST_ELEMS)
            cut->shape[i] = 1 + random_below(seed, 3);
        n_elems *= cut->shape[i];
        if (n_elems > MOST_ELEMS) {
            n_elems /= cut->shape[i];
            cut->shape[i] = 1;
        }
    }
}

static void pick_scheme(struct cut *cut, uint64_t *seed)
{
    struct qplan_scheme *scheme = &cut->scheme;
    uint64_t last = cut->shape[cut->rank - 1];
    *scheme = (struct qplan_scheme){.dtype = QPLAN_INT8, .scale_dtype = QPLAN_F32};
    scheme->granularity = (enum qplan_granularity)random_below(seed, cut->rank > 1 ? 4 : 3);
    scheme->axis =
        scheme->granularity == QPLAN_PER_CHANNEL ? (int32_t)random_below(seed, cut->rank) : 0;
    scheme->group = 1 + random_below(seed, random_below(seed, 2) ? 8 : last + 3);
    scheme->block_rows = 1 + random_below(seed, 9);
    scheme->block_cols = 1 + random_below(seed, random_below(seed, 2) ? 8 : last + 3);
}

/* A cut may need two grains of elements together, and as many sets as a grain has. */
static void pick_limits(struct cut *cut, uint64_t *seed)
{
    static const uint64_t elems[] = {2, 3, 4, 5, 7, 16, 33, 100, 257, 1000, 4096, 100000};
    static const uint64_t sets[] = {2, 3, 4, 7, 16, 100, 1024, 100000};
    const uint64_t least = 2 * cut->grain;
    cut->limits.elems = elems[random_below(seed, COUNT(elems))] + least - 2;
    cut->limits.sets = sets[random_below(seed, COUNT(sets))] + cut->grain;
    cut->limits.apart = cut->limits.cached = cut->limits.elems;
    if (random_below(seed, 2))
        cut->limits.pieced = cut->grain + random_below(seed, cut->limits.sets - cut->grain + 1);
    if (random_below(seed, 2))
        cut->limits.apart = least + random_below(seed, cut->limits.elems - least + 1);
    if (random_below(seed, 2))
        cut->limits.cached = least + random_below(seed, cut->limits.elems - least + 1);
    cut->elem_bytes = (size_t)2 << random_below(seed, 3);
}

static struct cut pick_cut(uint64_t *seed)
{
    static const uint64_t grains[] = {1, 2, 8, 32}; /* bytes, nibbles, 3 bits in bytes, in words */
    struct cut cut = {.grain = grains[random_below(seed, COUNT(grains))]};
    pick_shape(&cut, seed);
    pick_scheme(&cut, seed);
    pick_limits(&cut, seed);
    qp_sets_make(&cut.sets, &cut.scheme, cut.shape, cut.rank);
    return cut;
}

/* ---- Strips and pieces ----------------------------------------------------------------------- */

/* What has been seen of a tensor so far. */
static uint16_t times_seen[MOST_ELEMS];
static uint32_t word_owner[MOST_ELEMS * 2]; /* number of the write, from 1 */
static uint32_t n_writes;

/* Walks one matrix row of a piece, which is one write unless the piece is contiguous. */
static void check_row(const struct cut *cut, const struct qp_strip *strip,
                      const struct qp_piece *piece, uint64_t row)
{
    const struct qp_tile *tile = &piece->tile;
    uint64_t first = (piece->row + row) * cut->sets.row_len + piece->col;
    size_t across = qp_tile_cols(tile);
    for (uint64_t i = 0; i < piece->n_cols; i++) {
        uint64_t elem = first + i, word = words_of(cut, elem);
        uint64_t set = row / tile->band_rows * across + (tile->col_skip + i) / tile->col_width;
        REQUIRE(elem < cut->sets.n_elems, cut);
        times_seen[elem]++;
        REQUIRE(strip->set + piece->first_set + set == set_of(cut, elem), cut);
        REQUIRE(word_owner[word] == 0 || word_owner[word] == n_writes, cut);
        word_owner[word] = n_writes;
    }
}

static void check_piece(const struct cut *cut, const struct qp_strip *strip, uint64_t number)
{
    struct qp_piece piece;
    qp_piece_at(&cut->sets, strip, number, &piece);
    REQUIRE(piece.tile.rows == piece.n_rows && piece.tile.cols == piece.n_cols, cut);
    REQUIRE(piece.n_rows * piece.n_cols <= cut->limits.elems, cut);
    REQUIRE(piece.row >= strip->row && piece.row + piece.n_rows <= strip->row + strip->n_rows, cut);
    REQUIRE(piece.col >= strip->col && piece.col + piece.n_cols <= strip->col + strip->n_cols, cut);
    if (piece.n_cols == 0)
        return;
    REQUIRE(qp_tile_sets(&piece.tile) <= cut->limits.sets, cut);
    REQUIRE(piece.first_set + qp_tile_sets(&piece.tile) <= strip->n_sets, cut);
    REQUIRE(piece.tile.col_skip < piece.tile.col_width, cut);
    bool contiguous = piece.n_cols == cut->sets.row_len;
    for (uint64_t row = 0; row < piece.n_rows; row++) {
        n_writes += row == 0 || !contiguous;
        check_row(cut, strip, &piece, row);
    }
}

/* Every element of a set of the strip lies in the strip: counted against the whole tensor. */
static void check_whole_sets(const struct cut *cut, const struct qp_strip *strip)
{
    REQUIRE(strip->n_sets <= cut->limits.sets, cut);
    REQUIRE(strip->n_pieces == 1 || !cut->limits.pieced || strip->n_sets <= cut->limits.pieced,
            cut);
    for (uint64_t elem = 0; elem < cut->sets.n_elems; elem++) {
        uint64_t row = elem / cut->sets.row_len, col = elem % cut->sets.row_len;
        bool inside = row >= strip->row && row < strip->row + strip->n_rows && col >= strip->col &&
                      col < strip->col + strip->n_cols;
        uint64_t set = set_of(cut, elem);
        bool is_of_strip = set >= strip->set && set < strip->set + strip->n_sets;
        REQUIRE(inside == is_of_strip, cut);
    }
}

static void check_strips(const struct cut *cut)
{
    uint64_t band = 0, col = 0, n_strips = 0;
    struct qp_strip strip;
    memset(times_seen, 0, sizeof times_seen);
    memset(word_owner, 0, sizeof word_owner);
    n_writes = 0;
    do {
        qp_strip_at(&cut->sets, &cut->limits, cut->elem_bytes, cut->grain, band, col, &strip);
        REQUIRE(strip.n_rows > 0 && strip.n_cols > 0 && strip.n_pieces > 0, cut);
        REQUIRE(strip.n_bands == 1 || strip.n_cols == cut->sets.row_len, cut);
        if (n_strips++ < 4 || n_strips % 64 == 0)
            check_whole_sets(cut, &strip);
        for (uint64_t i = 0; i < strip.n_pieces; i++)
            check_piece(cut, &strip, i);
    } while (qp_strip_next(&cut->sets, &strip, &band, &col));
    for (uint64_t elem = 0; elem < cut->sets.n_elems; elem++)
        REQUIRE(times_seen[elem] == 1, cut);
}

static void strips_and_pieces_cover_every_element_once(void **state)
{
    uint64_t seed = 1;
    (void)state;
    for (int i = 0; i < 8000; i++) {
        struct cut cut = pick_cut(&seed);
        check_strips(&cut);
    }
}

/* A set is read in one go where it can be, so that its file is read once. */
static void what_fits_is_one_piece(void **state)
{
    uint64_t seed = 2;
    (void)state;
    for (int i = 0; i < 2000; i++) {
        struct cut cut = pick_cut(&seed);
        struct qp_strip strip;
        cut.limits = (struct qp_limits){
            .elems = MOST_ELEMS, .sets = MOST_ELEMS, .apart = MOST_ELEMS, .cached = MOST_ELEMS};
        qp_strip_at(&cut.sets, &cut.limits, cut.elem_bytes, cut.grain, 0, 0, &strip);
        REQUIRE(strip.n_pieces == 1 && strip.n_cols == cut.sets.row_len, &cut);
        check_strips(&cut);
    }
}

/* Words that go down rows are never torn: strips begin at rows that are a multiple of them. */
static void tall_words_are_not_torn(void **state)
{
    static const uint64_t talls[] = {4, 8, 16, 32};
    uint64_t seed = 5;
    (void)state;
    for (int i = 0; i < 4000; i++) {
        struct cut cut = {.grain = 1, .elem_bytes = 2, .rank = 2};
        struct qp_strip strip;
        uint64_t band = 0, col = 0;
        cut.shape[0] = 1 + random_below(&seed, 80);
        cut.shape[1] = 1 + random_below(&seed, 70);
        cut.scheme = (struct qplan_scheme){
            .dtype = QPLAN_INT8,
            .granularity = random_below(&seed, 2) ? QPLAN_PER_GROUP : QPLAN_PER_CHANNEL,
            .group = 1 + random_below(&seed, 20)};
        qp_sets_make(&cut.sets, &cut.scheme, cut.shape, cut.rank);
        cut.limits.tall = talls[random_below(&seed, COUNT(talls))];
        const uint64_t rows = cut.limits.tall + random_below(&seed, 40);
        cut.limits.elems = cut.limits.apart = rows * cut.shape[1];
        cut.limits.sets = rows * cut.shape[1];
        cut.limits.cached = 1 + random_below(&seed, cut.limits.elems);
        check_strips(&cut);
        do {
            qp_strip_at(&cut.sets, &cut.limits, 2, 1, band, col, &strip);
            const uint64_t elem = strip.row * cut.sets.row_len + strip.col;
            REQUIRE(elem % (cut.limits.tall * cut.shape[1]) == 0, &cut);
        } while (qp_strip_next(&cut.sets, &strip, &band, &col));
    }
}

/* ---- Flat ranges ----------------------------------------------------------------------------- */

static void check_tile(const struct cut *cut, uint64_t elem, const struct qp_tile *tile,
                       uint64_t first_set)
{
    for (uint64_t i = 0; i < tile->rows * tile->cols; i++) {
        uint64_t row = i / tile->cols, col = i % tile->cols;
        uint64_t set =
            row / tile->band_rows * qp_tile_cols(tile) + (tile->col_skip + col) / tile->col_width;
        REQUIRE(first_set + set == set_of(cut, elem + i), cut);
    }
}

static void check_flat_range(const struct cut *cut, uint64_t begin, uint64_t end,
                             uint64_t most_sets)
{
    for (uint64_t elem = begin; elem < end;) {
        struct qp_tile tile;
        uint64_t first_set;
        uint64_t n = qp_tile_at(&cut->sets, elem, end, most_sets, &tile, &first_set);
        REQUIRE(n > 0 && n <= end - elem, cut);
        REQUIRE(n == tile.rows * tile.cols, cut);
        REQUIRE(qp_tile_sets(&tile) <= most_sets, cut);
        check_tile(cut, elem, &tile, first_set);
        elem += n;
    }
}

static void flat_ranges_are_tiled_with_the_right_sets(void **state)
{
    static const uint64_t most_sets[] = {1, 2, 3, 10, 1024, UINT64_MAX};
    uint64_t seed = 3;
    (void)state;
    for (int i = 0; i < 20000; i++) {
        struct cut cut = pick_cut(&seed);
        uint64_t n = cut.sets.n_elems, begin = random_below(&seed, n);
        uint64_t end = begin + 1 + random_below(&seed, n - begin);
        check_flat_range(&cut, begin, end, most_sets[random_below(&seed, COUNT(most_sets))]);
        check_flat_range(&cut, 0, n, most_sets[random_below(&seed, COUNT(most_sets))]);
    }
}

/* ---- Bands ----------------------------------------------------------------------------------- */

static void bands_follow_each_other(void **state)
{
    uint64_t seed = 4;
    (void)state;
    for (int i = 0; i < 5000; i++) {
        struct cut cut = pick_cut(&seed);
        uint64_t row = 0;
        for (uint64_t band = 0; band < cut.sets.n_bands; band++) {
            REQUIRE(qp_band_row(&cut.sets, band) == row, &cut);
            row += qp_band_rows(&cut.sets, band);
        }
        REQUIRE(row * cut.sets.row_len == cut.sets.n_elems, &cut);
    }
}

/* Larger than memory: no count may overflow, no loop may run over elements. */
static void giant_tensors_are_cut_too(void **state)
{
    static const char *const schemes[] = {"int8:t",  "int8:c0",   "int8:c1",
                                          "int4:g1", "int4:g128", "int8:b128x128"};
    const uint64_t shape[] = {(uint64_t)1 << 31, (uint64_t)1 << 31};
    (void)state;
    for (size_t i = 0; i < COUNT(schemes); i++) {
        struct qplan_scheme scheme = scheme_of(schemes[i]);
        const struct qp_limits limits = {
            .elems = 1 << 19, .sets = 1 << 14, .apart = 1 << 19, .cached = 1 << 17};
        struct qp_sets sets;
        struct qp_strip strip;
        struct qp_piece piece;
        bool packed = qplan_dtype_bits(scheme.dtype) == 4;
        qp_sets_make(&sets, &scheme, shape, 2);
        qp_strip_at(&sets, &limits, 2, 1u + packed, sets.n_bands - 1, 0, &strip);
        assert_true(strip.n_sets <= limits.sets);
        qp_piece_at(&sets, &strip, strip.n_pieces - 1, &piece);
        assert_true(piece.n_rows * piece.n_cols <= limits.elems);
        assert_int_equal(piece.row + piece.n_rows, strip.row + strip.n_rows);
        assert_int_equal(piece.col + piece.n_cols, strip.col + strip.n_cols);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strips_and_pieces_cover_every_element_once),
        cmocka_unit_test(what_fits_is_one_piece),
        cmocka_unit_test(tall_words_are_not_torn),
        cmocka_unit_test(flat_ranges_are_tiled_with_the_right_sets),
        cmocka_unit_test(bands_follow_each_other),
        cmocka_unit_test(giant_tensors_are_cut_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
