/* Stands in for ucx.c where Lockstep was built without UCX: a world of several nodes cannot open. */
#include "comm/internal.h"

enum ls_status ls_comm_net_open(struct ls_comm_world *w, const struct ls_comm_config *config,
                                struct ls_comm_net **net, struct ls_error *err)
{
    (void)config, (void)net;
    return ls_error_set(
        err, LS_ERR_ENV,
        "%d ranks on %d nodes need UCX, and this Lockstep was built without; install "
        "libucx-dev and configure again (or ./configure --with-ucx=DIR)",
        w->size, w->nodes);
}

const void *ls_comm_net_address(const struct ls_comm_net *net, size_t *bytes)
{
    (void)net;
    *bytes = 0;
    return NULL;
}

enum ls_status ls_comm_net_connect(struct ls_comm_net *net, int rank, struct ls_error *err)
{
    (void)net, (void)rank;
    return ls_error_set(err, LS_ERR_ENV, "built without UCX");
}

bool ls_comm_net_send(struct ls_comm_net *net, int rank, const void *header, size_t header_bytes,
                      const void *data, size_t bytes, int *pending)
{
    (void)net, (void)rank, (void)header, (void)header_bytes, (void)data, (void)bytes, (void)pending;
    return false;
}

bool ls_comm_net_progress(struct ls_comm_net *net)
{
    (void)net;
    return false;
}

bool ls_comm_net_connected(const struct ls_comm_net *net, int rank)
{
    (void)net, (void)rank;
    return false;
}

const char *ls_comm_net_broken(const struct ls_comm_net *net, int rank)
{
    (void)net, (void)rank;
    return "built without UCX";
}

void ls_comm_net_close(struct ls_comm_net *net, bool flush)
{
    (void)net, (void)flush;
}

const char *ls_comm_ucx_version(void)
{
    return "none";
}
