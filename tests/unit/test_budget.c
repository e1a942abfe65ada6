/*
 * test_budget.c - choosing sizes within a sum of bytes, against every choice that there is: random
 * tables with ties, gaps, dominated options and large numbers, and every budget that matters.
 */
#include "support.h"

#include "lib/plan/budget.h"

#define MOST_ITEMS   5
#define MOST_OPTIONS 4

struct table {
    struct qp_option options[MOST_ITEMS * MOST_OPTIONS];
    bool is_first[MOST_ITEMS];
    struct qp_budget budget;
};

static void make_table(struct table *t, uint64_t *seed)
{
    const size_t n = (size_t)random_below(seed, MOST_ITEMS + 1);
    const size_t k = 1 + (size_t)random_below(seed, MOST_OPTIONS);
    const uint64_t most = (uint64_t)1 << (2 + random_below(seed, 40));
    for (size_t i = 0; i < n; i++) {
        const size_t sure = (size_t)random_below(seed, k);
        t->is_first[i] = random_below(seed, 4) == 0;
        for (size_t j = 0; j < k; j++)
            t->options[i * k + j] = (struct qp_option){
                .bytes = random_below(seed, most),
                .error = (double)random_below(seed, random_below(seed, 2) ? 4 : 100000),
                .is_there = j == sure || random_below(seed, 4) > 0,
                .is_wide = random_below(seed, 3) == 0};
    }
    t->budget = (struct qp_budget){
        .n_items = n, .n_options = k, .options = t->options, .is_first = t->is_first};
}

static struct qp_mix mix_of(const struct qp_budget *b, const size_t *option)
{
    struct qp_mix mix = {0, 0};
    for (size_t i = 0; i < b->n_items; i++) {
        const struct qp_option *o = &b->options[i * b->n_options + option[i]];
        assert_true(option[i] < b->n_options && o->is_there);
        mix.bytes += o->bytes;
        mix.error += o->error;
    }
    return mix;
}

/* The next of all choices; false behind the last. */
static bool next_choice(const struct qp_budget *b, size_t *option)
{
    for (size_t i = 0; i < b->n_items; i++) {
        if (++option[i] < b->n_options)
            return true;
        option[i] = 0;
    }
    return false;
}

static bool is_possible(const struct qp_budget *b, const size_t *option, bool raised)
{
    for (size_t i = 0; i < b->n_items; i++) {
        const struct qp_option *row = &b->options[i * b->n_options];
        bool has_wide = false;
        for (size_t j = 0; j < b->n_options; j++)
            has_wide |= row[j].is_there && row[j].is_wide;
        if (!row[option[i]].is_there ||
            (raised && b->is_first[i] && has_wide && !row[option[i]].is_wide))
            return false;
    }
    return true;
}

/* The least error of any choice; below 0 if none keeps to the bytes. */
static double least_error(const struct qp_budget *b, bool raised)
{
    size_t option[MOST_ITEMS] = {0};
    double best = -1;
    do {
        if (!is_possible(b, option, raised))
            continue;
        const struct qp_mix mix = mix_of(b, option);
        if (mix.bytes <= b->bytes && (best < 0 || mix.error < best))
            best = mix.error;
    } while (next_choice(b, option));
    return best;
}

/* How often a choice was the best of all, and how often it was made. */
struct score {
    unsigned best, all;
};

static void check_choice(const struct qp_budget *b, struct score *score)
{
    size_t option[MOST_ITEMS];
    struct qp_budget_choice choice = {.option = option};
    struct qplan_error err;
    OK(qp_budget_choose(b, &choice, &err), &err);
    const struct qp_mix mix = mix_of(b, option);
    assert_true(mix.bytes == choice.mix.bytes && mix.error == choice.mix.error);
    if (qp_budget_least(b) > b->bytes) {
        assert_true(mix.bytes == qp_budget_least(b));
        return;
    }
    const double least = least_error(b, choice.raised);
    assert_true(mix.bytes <= b->bytes);
    assert_true(is_possible(b, option, choice.raised));
    assert_true(least >= 0 && mix.error >= least);
    assert_true(choice.bound <= least * (1 + 1e-12) + 1e-6); /* which no rounding explains */
    for (size_t i = 0; i < b->n_options; i++) {
        const struct qp_mix uniform = qp_budget_uniform(b, i, NULL);
        assert_true(uniform.bytes > b->bytes || mix.error <= uniform.error);
        assert_true(uniform.bytes > b->bytes || choice.of_uniform.error <= uniform.error);
    }
    score->best += mix.error == least;
    score->all++;
}

static void test_against_all(void **state)
{
    (void)state;
    uint64_t seed = 18;
    struct score score = {0, 0};
    for (unsigned i = 0; i < 4000; i++) {
        struct table t;
        make_table(&t, &seed);
        const uint64_t least = qp_budget_least(&t.budget);
        t.budget.bytes = least > 0 ? least - 1 : 0;
        check_choice(&t.budget, &score);
        t.budget.bytes = least;
        check_choice(&t.budget, &score);
        t.budget.bytes = least + random_below(&seed, least + 2);
        check_choice(&t.budget, &score);
        t.budget.bytes = UINT64_MAX;
        check_choice(&t.budget, &score);
    }
    assert_true(score.all > 10000);
    assert_true(score.best == score.all);
}

/* By hand: items of 10 and 20 bytes, of which the second saves more for a byte. */
static void test_by_hand(void **state)
{
    (void)state;
    const struct qp_option options[] = {
        {10, 8, true, false}, {20, 2, true, true}, {10, 9, true, false}, {20, 1, true, true}};
    bool is_first[2] = {false, false};
    size_t option[2];
    struct qp_budget b = {2, 2, options, is_first, 30};
    struct qp_budget_choice choice = {.option = option};
    struct qplan_error err;
    OK(qp_budget_choose(&b, &choice, &err), &err);
    assert_true(option[0] == 0 && option[1] == 1 && choice.mix.bytes == 30);
    assert_true(choice.mix.error == 9 && choice.bound == 9 && !choice.raised);
    assert_true(choice.uniform == 0 && choice.of_uniform.error == 17);

    b.bytes = 35; /* half of the other step would still fit, but there is no half */
    OK(qp_budget_choose(&b, &choice, &err), &err);
    assert_true(choice.mix.error == 9 && choice.bound == 9);

    is_first[0] = true; /* it comes first, though it saves less */
    OK(qp_budget_choose(&b, &choice, &err), &err);
    assert_true(option[0] == 1 && option[1] == 0 && choice.mix.error == 11 && choice.raised);

    b.bytes = 20; /* nothing is left for it */
    OK(qp_budget_choose(&b, &choice, &err), &err);
    assert_true(option[0] == 0 && option[1] == 0 && !choice.raised);
}

/* A wide option is not taken where all together would be worse than with one option for all. */
static void test_first_not_at_any_price(void **state)
{
    (void)state;
    const struct qp_option options[] = {{10, 5, true, false}, {20, 4, true, false},
                                        {30, 4, true, true},  {10, 100, true, false},
                                        {20, 1, true, false}, {30, 1, true, true}};
    const bool is_first[2] = {true, false};
    size_t option[2];
    struct qp_budget b = {2, 3, options, is_first, 40};
    struct qp_budget_choice choice = {.option = option};
    struct qplan_error err;
    OK(qp_budget_choose(&b, &choice, &err), &err);
    assert_true(choice.uniform == 1 && choice.mix.error == 5 && !choice.raised);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_all),
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_first_not_at_any_price),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
