/*
 * race.c - two threads write one variable, which ThreadSanitizer must not let pass.
 */
#include <pthread.h>
#include <stddef.h>

static int shared;

static void *count(void *arg)
{
    (void)arg;
    for (int i = 0; i < 1000; i++)
        shared++;
    return NULL;
}

int main(void)
{
    pthread_t other;
    if (pthread_create(&other, NULL, count, NULL) != 0)
        return 1;
    (void)count(NULL);
    return pthread_join(other, NULL);
}
