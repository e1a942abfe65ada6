/*
 * test_op_laws.c - laws that hold for every operator, on every case of testdata/ops: no byte
 * outside of a buffer is touched, inputs are not written, a strided tensor gives the bits of its
 * contiguous copy and its gaps stay as they are, a run that is refused has written nothing, and the
 * bits are the same for any number of threads and any instruction set, as far as the guarantee says
 * so.
 *
 * It walks the table and knows no operator. What the bits are is for tests/ops/run.py to say.
 */
#include "op_goldens.h"

/* ---- Laws -------------------------------------------------------------------------------------
 */

static const struct way first_way = {QPLAN_ISA_SCALAR, 1, true, false, NULL};

/* Whether a guarantee says that two ways give the same bits. */
static bool must_agree(const struct qplan_op_guarantee *g, const struct way *a, const struct way *b)
{
    return g->deterministic && (a->threads == b->threads || g->thread_invariant) &&
           (a->isa == b->isa || g->bit_stable);
}

static void check_way(const char *name, const struct golden *g, const struct way *way,
                      const struct text *expected)
{
    struct outcome o;
    enum qplan_status status = run_golden(g, way, &o);
    if (status != QPLAN_OK)
        fail_msg("%s: %s, %u threads: %s", name, qplan_isa_name(way->isa), way->threads,
                 qplan_status_name(status));
    if (must_agree(&o.guarantee, way, &first_way) &&
        (o.out.n != expected->n ||
         (o.out.n > 0 && memcmp(o.out.data, expected->data, o.out.n) != 0)))
        fail_msg("%s: other bits at %s, %u threads, %s", name, qplan_isa_name(way->isa),
                 way->threads, way->strided ? "strided" : "contiguous");
    text_free(&o.out);
}

static void check_refused(const char *name, const struct golden *g, const struct way *way)
{
    struct outcome o;
    if (run_golden(g, way, &o) == QPLAN_OK)
        fail_msg("%s: expected a refusal", name);
    check_unwritten(g, &o.out);
    text_free(&o.out);
}

static void check_golden(const char *name, const struct golden *g, void *seen_)
{
    bool *seen = seen_;
    static const unsigned threads[] = {1, 2, 3, 7};
    static const char *const levels[] = {"scalar", "avx2", "avx512"};
    struct outcome expected = {0};
    if (!g->refused)
        assert_int_equal(run_golden(g, &first_way, &expected), QPLAN_OK);
    for (size_t k = 0; !g->refused && qplan_op_at(k); k++)
        seen[k] |= qplan_op_at(k) == g->info;
    for (size_t i = 0; i < COUNT(levels) * COUNT(threads) * 2; i++) {
        struct way way = {
            .threads = threads[i / 2 % 4], .at_end = i / 2 % 2 == 0, .strided = i % 2};
        if (qplan_isa_parse(levels[i / 8], &way.isa, NULL) != QPLAN_OK)
            continue;
        if (g->refused)
            check_refused(name, g, &way);
        else
            check_way(name, g, &way, &expected.out);
    }
    text_free(&expected.out);
}

static void test_every_case(void **state)
{
    bool seen[256] = {false};
    (void)state;
    each_golden(check_golden, seen);
    for (size_t k = 0; qplan_op_at(k); k++) {
        if (!seen[k])
            fail_msg("%s has no case in " FOLDER, qplan_op_at(k)->name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_case)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
