/*
 * topics.c - the topics of qplan help: tables of the library, printed as they are. The tables of
 * the manual pages are made from these texts (scripts/man-topics.py).
 */
#include "help.h"

#include <string.h>

/* Columns are two blanks apart or more, and a line of a table begins with two. */
static void print_metrics(FILE *to)
{
    struct qplan_metric m;
    fputs("What a gate of --fail-if can ask for: [SCOPE:]METRIC OP NUMBER.\n"
          "\n"
          "A gate without a scope looks where the third column says: at the quantized tensor that\n"
          "is worst by its metric, or at the total of the file. 'total only' has no other scope.\n"
          "The unit 'value' is that of the weights. Metrics marked with * need the source.\n"
          "\n",
          to);
    fprintf(to, "  %-14s%-10s%-12s%s\n", "metric", "unit", "scope", "meaning");
    for (size_t i = 0; qplan_metric_at(i, &m); i++) {
        char scope[16];
        (void)snprintf(scope, sizeof scope, "%s%s", m.scope, m.of_tensors ? "" : " only");
        fprintf(to, "  %-14s%-10s%-12s%s%s\n", m.name, m.unit, scope, m.needs_source ? "* " : "",
                m.help);
    }
}

const struct help_topic help_topics[] = {
    {"metrics", "what the gates of --fail-if can ask for", print_metrics},
    {NULL, NULL, NULL},
};

const struct help_topic *help_find_topic(const char *name)
{
    const struct help_topic *topic = help_topics;
    while (topic->name && strcmp(topic->name, name) != 0)
        topic++;
    return topic->name ? topic : NULL;
}
