/*
 * report_facts.c - what the stored parameters of a file say of its tensors, read by a team. Workers
 * claim rows in ascending order, and of several faults the one of the first row counts: so the
 * outcome does not depend on their number.
 */
#include "report.h"

#include "lib/base/check.h"
#include "lib/base/pool.h"

#include <pthread.h>

/* Rows that are claimed at once: parameters of neighbours are read together. */
#define ROWS_AT_ONCE 32

struct team {
    const struct qplan_checkpoint *file;
    struct qp_row *rows;
    size_t n_rows;
    bool strict;
    pthread_mutex_t lock;
    size_t next;              /* row to claim */
    size_t first_bad;         /* n_rows = none */
    enum qplan_status status; /* of that row, and its error */
    struct qplan_error *err;
};

/* False if there is nothing left to do. */
static bool claim(struct team *team, size_t *first, size_t *end)
{
    (void)pthread_mutex_lock(&team->lock);
    *first = team->next;
    *end = (size_t)qp_min_u64(*first + ROWS_AT_ONCE, team->n_rows);
    team->next = *end;
    const bool some = *first < team->first_bad && *first < *end;
    (void)pthread_mutex_unlock(&team->lock);
    return some;
}

static void fail(struct team *team, size_t row, enum qplan_status status,
                 const struct qplan_error *err)
{
    (void)pthread_mutex_lock(&team->lock);
    if (row < team->first_bad) {
        team->first_bad = row;
        team->status = status;
        if (team->err)
            *team->err = *err;
    }
    (void)pthread_mutex_unlock(&team->lock);
}

static void read_rows(struct team *team, struct qp_facts_reader *reader, size_t first, size_t end,
                      struct qplan_error *err)
{
    for (size_t i = first; i < end; i++) {
        struct qp_row *row = &team->rows[i];
        if (!row->facts)
            continue;
        enum qplan_status status =
            qp_facts_read(reader, row->tensor, team->strict, row->facts, err);
        if (status != QPLAN_OK) {
            fail(team, i, status, err);
            return;
        }
    }
}

static void work(void *ctx, unsigned worker)
{
    struct team *team = ctx;
    struct qp_facts_reader *reader = NULL;
    struct qplan_error err;
    size_t first, end;
    (void)worker;
    while (claim(team, &first, &end)) {
        enum qplan_status status = reader ? QPLAN_OK : qp_facts_open(&reader, team->file, &err);
        if (status == QPLAN_OK)
            read_rows(team, reader, first, end, &err);
        else
            fail(team, first, status, &err);
    }
    qp_facts_close(reader);
}

enum qplan_status qp_report_facts(struct qp_row *rows, size_t n,
                                  const struct qplan_checkpoint *file, bool strict,
                                  unsigned threads, struct qplan_error *err)
{
    struct team team = {
        .file = file, .rows = rows, .n_rows = n, .strict = strict, .first_bad = n, .err = err};
    const uint64_t claims = qp_div_up(n, ROWS_AT_ONCE);
    if (pthread_mutex_init(&team.lock, NULL) != 0)
        return qp_fail_memory(err, "report", sizeof team.lock);
    (void)qp_team_run((unsigned)qp_min_u64(claims, threads ? threads : qp_cpu_count()), work,
                      &team);
    (void)pthread_mutex_destroy(&team.lock);
    return team.status;
}
