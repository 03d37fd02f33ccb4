/* Prints on one line what ls_slurm_read makes of the environment, for tests on a real cluster. */
#include "topo/topo.h"

#include <stdio.h>
#include <stdlib.h>

static const char *get(void *user, const char *name)
{
    (void)user;
    return getenv(name);
}

int main(void)
{
    static const char *const places[] = {"none", "allocation", "step"};
    struct ls_slurm s;
    struct ls_error err = {0};
    struct ls_buf nodes;
    if (ls_slurm_read(get, NULL, &s, &err) != LS_OK) {
        printf("error %s\n", err.message);
        return 4;
    }
    ls_buf_init(&nodes, (size_t)1 << 24);
    ls_hostlist_expand(&s.nodes, ' ', &nodes);
    printf("%s nodes %sid %d rank %d local %d of %d", places[s.place], nodes.data ? nodes.data : "",
           s.node_id, s.proc_id, s.local_id, s.ntasks);
    for (int i = 0; s.tasks_per_node && i < s.nodes.count; i++)
        printf("%s%d", i ? "," : " layout ", s.tasks_per_node[i]);
    printf(" gpus %d array %lld components %d warnings %d\n", s.visible.count,
           (long long)s.array_task_id, s.ncomponents, s.nwarnings);
    ls_buf_free(&nodes);
    ls_slurm_free(&s);
    return 0;
}
