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
    fprintf(to, "  %-18s%-10s%-12s%s\n", "metric", "unit", "scope", "meaning");
    for (size_t i = 0; qplan_metric_at(i, &m); i++) {
        char scope[16];
        (void)snprintf(scope, sizeof scope, "%s%s", m.scope, m.of_tensors ? "" : " only");
        fprintf(to, "  %-18s%-10s%-12s%s%s\n", m.name, m.unit, scope, m.needs_source ? "* " : "",
                m.help);
    }
}

static const char *output_of(const struct qplan_format_facts *f)
{
    return f->is_read_only ? "none"
           : f->is_folder  ? "folder"
           : f->is_file    ? "file"
                           : "file, folder";
}

static void print_formats(FILE *to)
{
    struct qplan_format_facts f;
    fputs("Layouts of --format. Each is also read, by inspect, verify, dequantize and, with\n"
          "--requantize, quantize.\n"
          "\n"
          "A layout whose output is a folder needs a folder with a config.json as MODEL. Without\n"
          "--dtype or --scheme, the scheme that is named first is the one that other options of\n"
          "the scheme change.\n"
          "\n",
          to);
    fprintf(to, "  %-20s%-14s%-51s%s\n", "format", "output", "loaded by", "schemes");
    for (size_t i = 0; qplan_format_at(i, &f); i++)
        fprintf(to, "  %-20s%-14s%-51s%s%s%s\n", f.name, output_of(&f),
                f.loaded_by ? f.loaded_by : "qplan", f.schemes, f.reads ? "; read besides: " : "",
                f.reads ? f.reads : "");
}

static void print_presets(FILE *to)
{
    static const char *const activations[] = {[QPLAN_ACTIVATIONS_USUAL] = "",
                                              [QPLAN_ACTIVATIONS_NONE] = "",
                                              [QPLAN_ACTIVATIONS_DYNAMIC] =
                                                  " --activations dynamic"};
    const struct qplan_preset *p;
    fputs("What --preset stands for.\n\n", to);
    fprintf(to, "  %-16s%s\n", "preset", "options");
    for (size_t i = 0; (p = qplan_preset_at(i)) != NULL; i++)
        fprintf(to, "  %-16s--format %s --scheme %s%s\n", p->name, p->format, p->scheme,
                activations[p->activations]);
}

static void print_rules(FILE *to)
{
    struct qplan_lint_rule r;
    fputs("What lint looks for. A rule with an engine counts with --for that engine; one with\n"
          "layouts counts for those.\n"
          "\n",
          to);
    fprintf(to, "  %-6s%-10s%s\n", "rule", "severity", "what it finds");
    for (size_t i = 0; qplan_lint_rule_at(i, &r); i++)
        fprintf(to, "  %-6s%-10s%s%s%s%s\n", r.id, r.is_error ? "error" : "warning", r.about,
                r.engines ? " [" : "", r.engines ? r.engines : "", r.engines ? "]" : "");
}

const struct help_topic help_topics[] = {
    {"formats", "the layouts that are written and read", print_formats},
    {"presets", "the names of --preset, and what they stand for", print_presets},
    {"rules", "what lint looks for", print_rules},
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
