/* Opens a checkpoint and prints how many tensors it has. */
#include <qplan.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    struct qplan_checkpoint *checkpoint;
    struct qplan_error err;

    if (argc != 2) {
        fprintf(stderr, "usage: example FILE\n");
        return 2;
    }
    if (qplan_checkpoint_open(&checkpoint, argv[1], &err)) {
        fprintf(stderr, "%s: %s\n", err.subject, err.message);
        return 1;
    }
    printf("%zu\n", qplan_checkpoint_count(checkpoint));
    qplan_checkpoint_close(checkpoint);
    return 0;
}
