/* Stands in for client.c and server.c where PMIx was not found: says so, once, in every opening. */
#include "wire/internal.h"

#include <stdio.h>

static enum ls_status refuse(struct ls_error *err)
{
    return ls_error_set(
        err, LS_ERR_ENV,
        "configured without PMIx, so this build runs one rank; install PMIx and run "
        "./configure again");
}

enum ls_status ls_wire_client_open(const char *host, double deadline,
                                   struct ls_wire_client **client, struct ls_error *err)
{
    (void)host, (void)deadline, (void)client;
    return refuse(err);
}

enum ls_status ls_wire_client_open_telling(const char *host, double deadline,
                                           const struct ls_wire_teller *teller,
                                           struct ls_wire_client **client, struct ls_error *err)
{
    (void)teller;
    return ls_wire_client_open(host, deadline, client, err);
}

enum ls_status ls_wire_exchange(void *client, const void *mine, size_t n, const void *const **all,
                                const size_t **bytes, struct ls_error *err)
{
    (void)client, (void)mine, (void)n, (void)all, (void)bytes;
    return refuse(err);
}

enum ls_status ls_wire_roll_call(double deadline, const struct ls_wire_roll *roll,
                                 struct ls_error *err)
{
    (void)deadline, (void)roll, (void)err;
    return LS_OK;
}

void ls_wire_roll_decline(const char *word)
{
    (void)word;
}

enum ls_status ls_wire_roll_again(double deadline, struct ls_error *err)
{
    (void)deadline, (void)err;
    return LS_OK;
}

void ls_wire_roll_abort(int code, const char *text)
{
    (void)code, (void)text;
}

void ls_wire_roll_end(void)
{
}

void ls_wire_client_close(struct ls_wire_client *client)
{
    (void)client;
}

void ls_wire_client_abort(struct ls_wire_client *client, int code, const char *text)
{
    (void)client, (void)code, (void)text;
}

enum ls_status ls_wire_server_open(const char *tmpdir, struct ls_wire_server **server,
                                   struct ls_error *err)
{
    (void)tmpdir, (void)server;
    return refuse(err);
}

enum ls_status ls_wire_server_begin(struct ls_wire_server *server, const char *job, int generation,
                                    const struct ls_wire_map *map, int keeper, struct ls_error *err)
{
    (void)server, (void)job, (void)generation, (void)map, (void)keeper;
    return refuse(err);
}

enum ls_status ls_wire_server_env(struct ls_wire_server *server, int generation, int rank,
                                  char *const *base, char ***env, int *first, struct ls_error *err)
{
    (void)server, (void)generation, (void)rank, (void)base, (void)env, (void)first;
    return refuse(err);
}

void ls_wire_server_end(struct ls_wire_server *server, int generation)
{
    (void)server, (void)generation;
}

void ls_wire_server_close(struct ls_wire_server *server)
{
    (void)server;
}

int ls_wire_server_fd(const struct ls_wire_server *server)
{
    (void)server;
    return -1;
}

struct ls_wire_item *ls_wire_server_take(struct ls_wire_server *server)
{
    (void)server;
    return NULL;
}

void ls_wire_server_answer(struct ls_wire_server *server, int generation, int seq, const void *data,
                           size_t n)
{
    (void)server, (void)generation, (void)seq, (void)data, (void)n;
}

void ls_wire_server_fail(struct ls_wire_server *server)
{
    (void)server;
}

const char *ls_wire_pmix_version(char out[static 64])
{
    snprintf(out, 64, "none");
    return out;
}
