/* The collectives as others call them: each fills in a request and starts it. */
#include "comm/internal.h"

enum ls_status ls_comm_all_reduce(struct ls_comm *c, const void *in, void *out, int64_t count,
                                  enum ls_comm_type type, enum ls_comm_op op,
                                  struct ls_comm_request **req, struct ls_error *err)
{
    struct ls_comm_request r = {
        .kind = LS_COMM_ALL_REDUCE, .in = in, .out = out, .count = count, .type = type, .op = op};
    return ls_comm_start(c, &r, req, err);
}

enum ls_status ls_comm_reduce_scatter(struct ls_comm *c, const void *in, void *out, int64_t count,
                                      enum ls_comm_type type, enum ls_comm_op op, double *squares,
                                      struct ls_comm_request **req, struct ls_error *err)
{
    struct ls_comm_request r = {.kind = LS_COMM_REDUCE_SCATTER,
                                .in = in,
                                .out = out,
                                .count = count,
                                .type = type,
                                .op = op,
                                .squares = squares};
    return ls_comm_start(c, &r, req, err);
}

enum ls_status ls_comm_all_gather(struct ls_comm *c, const void *in, void *out, int64_t count,
                                  enum ls_comm_type type, struct ls_comm_request **req,
                                  struct ls_error *err)
{
    struct ls_comm_request r = {
        .kind = LS_COMM_ALL_GATHER, .in = in, .out = out, .count = count, .type = type};
    return ls_comm_start(c, &r, req, err);
}

enum ls_status ls_comm_broadcast(struct ls_comm *c, void *buf, int64_t count,
                                 enum ls_comm_type type, int root, struct ls_comm_request **req,
                                 struct ls_error *err)
{
    struct ls_comm_request r = {.kind = LS_COMM_BROADCAST,
                                .in = buf,
                                .out = buf,
                                .count = count,
                                .type = type,
                                .root = root};
    return ls_comm_start(c, &r, req, err);
}

enum ls_status ls_comm_send(struct ls_comm *c, const void *buf, int64_t count,
                            enum ls_comm_type type, int to, struct ls_comm_request **req,
                            struct ls_error *err)
{
    /* `out` is where a schedule takes results from; it is only read. */
    struct ls_comm_request r = {.kind = LS_COMM_SEND,
                                .in = buf,
                                .out = (void *)(uintptr_t)buf,
                                .count = count,
                                .type = type,
                                .root = to};
    return ls_comm_start(c, &r, req, err);
}

enum ls_status ls_comm_recv(struct ls_comm *c, void *buf, int64_t count, enum ls_comm_type type,
                            int from, struct ls_comm_request **req, struct ls_error *err)
{
    struct ls_comm_request r = {
        .kind = LS_COMM_RECV, .in = buf, .out = buf, .count = count, .type = type, .root = from};
    return ls_comm_start(c, &r, req, err);
}

enum ls_status ls_comm_barrier(struct ls_comm *c, struct ls_error *err)
{
    int32_t in = 0, out = 0;
    struct ls_comm_request r = {.kind = LS_COMM_ALL_REDUCE,
                                .in = &in,
                                .out = &out,
                                .count = 1,
                                .type = LS_COMM_I32,
                                .op = LS_COMM_MAX,
                                .barrier = true};
    struct ls_comm_request *req;
    LS_TRY(ls_comm_start(c, &r, &req, err));
    return ls_comm_wait(req, err);
}
