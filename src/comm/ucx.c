/* The only file that knows UCX (UCP): one context, one worker, an endpoint per rank that is talked
 * to, and active messages. Endpoints report broken peers, so a death ends in an error and not in a
 * hang. Shared-memory transports are off, unless the user chose transports himself: ranks of one
 * node meet in our own shared memory, and "nodes" that share a machine in tests must behave as if
 * they did not. */
#include "comm/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

enum { MESSAGE_ID = 7 };

struct ls_comm_net {
    struct ls_comm_world *world;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_address_t *address;
    size_t address_bytes;
    struct peer {
        struct ls_comm_net *net;
        ucp_ep_h ep;
        const char *broken;
    } * peer; /* [size] */
    struct parcel *spare, *all;
    uint64_t arrivals;
};

/* A send under way: UCX reads the header until it is through. */
struct parcel {
    struct parcel *next, *next_of_all;
    struct ls_comm_net *net;
    int *pending;
    char header[64];
};

static ucs_status_t on_message(void *arg, const void *header, size_t header_bytes, void *data,
                               size_t bytes, const ucp_am_recv_param_t *param)
{
    struct ls_comm_net *net = arg;
    net->arrivals++;
    /* We send eagerly only; anything else is not ours. */
    if (!(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV))
        ls_comm_wire_receive(net->world, header, header_bytes, data, bytes);
    return UCS_OK;
}

static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    struct peer *peer = arg;
    peer->net->arrivals++;
    if (!peer->broken)
        peer->broken = ucs_status_string(status);
}

static enum ls_status failed(const char *what, ucs_status_t status, struct ls_error *err)
{
    return ls_error_set(
        err, LS_ERR_ENV,
        "UCX: %s: %s; \"ucx_info -d\" lists the transports and devices of this node", what,
        ucs_status_string(status));
}

/* Has the user, or the site's ucx.conf, chosen transports? */
static bool transports_chosen(const ucp_config_t *config)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    if (!f)
        return false;
    ucp_config_print(config, f, NULL, UCS_CONFIG_PRINT_CONFIG);
    fclose(f);
    const char *tls = text ? strstr(text, "UCX_TLS=") : NULL;
    bool chosen = tls && strncmp(tls, "UCX_TLS=all\n", 12) != 0;
    free(text);
    return chosen;
}

static enum ls_status open_context(struct ls_comm_net *net, const struct ls_comm_config *config,
                                   struct ls_error *err)
{
    ucp_config_t *settings;
    ucs_status_t s = ucp_config_read(NULL, NULL, &settings);
    if (s != UCS_OK)
        return failed("reading its configuration", s, err);
    if (!transports_chosen(settings) && ucp_config_modify(settings, "TLS", "^shm") != UCS_OK)
        ucp_config_modify(settings, "TLS", "^sm");
    /* TCP sends segments of 8 KiB by default; ours are larger, and must not be cut. Settings below
     * UCP have a prefix in their names since 1.14. */
    static const char *const name[] = {"UCX_TCP_TX_SEG_SIZE", "UCX_TCP_RX_SEG_SIZE"};
    unsigned major, minor, release;
    ucp_get_version(&major, &minor, &release);
    size_t skip = strlen(major == 1 && minor < 14 ? "UCX_TCP_" : "UCX_");
    for (int i = 0; i < 2; i++)
        if (!config->is_set || !config->is_set(name[i]))
            ucp_config_modify(settings, name[i] + skip, "128k");
    ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
        .features = UCP_FEATURE_AM,
        .estimated_num_eps = (size_t)net->world->size,
    };
    s = ucp_init(&params, settings, &net->context);
    ucp_config_release(settings);
    if (s != UCS_OK)
        return failed("opening a context", s, err);
    ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SINGLE};
    if ((s = ucp_worker_create(net->context, &worker, &net->worker)) != UCS_OK)
        return failed("opening a worker", s, err);
    ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                      UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = MESSAGE_ID,
        .cb = on_message,
        .arg = net,
    };
    if ((s = ucp_worker_set_am_recv_handler(net->worker, &handler)) != UCS_OK)
        return failed("receiving active messages", s, err);
    if ((s = ucp_worker_get_address(net->worker, &net->address, &net->address_bytes)) != UCS_OK)
        return failed("finding the address of this process", s, err);
    return LS_OK;
}

enum ls_status ls_comm_net_open(struct ls_comm_world *w, const struct ls_comm_config *config,
                                struct ls_comm_net **out, struct ls_error *err)
{
    struct ls_comm_net *net = calloc(1, sizeof *net);
    struct peer *peer = calloc((size_t)w->size, sizeof *peer);
    if (!net || !peer) {
        free(net);
        free(peer);
        return ls_error_set(err, LS_ERR_NOMEM, "a network of %d ranks", w->size);
    }
    net->world = w;
    net->peer = peer;
    for (int i = 0; i < w->size; i++)
        peer[i].net = net;
    enum ls_status status = open_context(net, config, err);
    if (status != LS_OK)
        ls_comm_net_close(net, false);
    else
        *out = net;
    return status;
}

const void *ls_comm_net_address(const struct ls_comm_net *net, size_t *bytes)
{
    *bytes = net->address_bytes;
    return net->address;
}

enum ls_status ls_comm_net_connect(struct ls_comm_net *net, int rank, struct ls_error *err)
{
    struct peer *p = &net->peer[rank];
    if (p->ep)
        return LS_OK;
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = net->world->address[rank],
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_error, .arg = p},
    };
    ucs_status_t s = ucp_ep_create(net->worker, &params, &p->ep);
    if (s == UCS_OK)
        return LS_OK;
    p->ep = NULL;
    p->broken = ucs_status_string(s);
    return ls_error_set(err, LS_ERR_ENV,
                        "rank %d on %s cannot be reached over UCX: %s; compare \"ucx_info -d\" of "
                        "both nodes",
                        rank, net->world->host[rank], p->broken);
}

static void put_back(struct parcel *p)
{
    p->next = p->net->spare;
    p->net->spare = p;
}

static void on_sent(void *request, ucs_status_t status, void *arg)
{
    (void)status; /* a broken connection is reported by on_error */
    struct parcel *p = arg;
    p->net->arrivals++;
    --*p->pending;
    put_back(p);
    ucp_request_free(request);
}

bool ls_comm_net_send(struct ls_comm_net *net, int rank, const void *header, size_t header_bytes,
                      const void *data, size_t bytes, int *pending)
{
    struct parcel *p = net->spare;
    if (ls_comm_net_connect(net, rank, NULL) != LS_OK || net->peer[rank].broken ||
        header_bytes > sizeof p->header)
        return false;
    if (p)
        net->spare = p->next;
    else if ((p = malloc(sizeof *p)))
        p->next_of_all = net->all, net->all = p;
    else
        return false;
    p->net = net;
    p->pending = pending;
    memcpy(p->header, header, header_bytes);
    ucp_request_param_t param = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
        .cb.send = on_sent,
        .user_data = p,
        .flags = UCP_AM_SEND_FLAG_EAGER,
    };
    ucs_status_ptr_t s = ucp_am_send_nbx(net->peer[rank].ep, MESSAGE_ID, p->header, header_bytes,
                                         data, bytes, &param);
    if (UCS_PTR_IS_PTR(s)) {
        ++*pending;
        return true;
    }
    put_back(p);
    if (UCS_PTR_IS_ERR(s) && !net->peer[rank].broken)
        net->peer[rank].broken = ucs_status_string(UCS_PTR_STATUS(s));
    return !UCS_PTR_IS_ERR(s);
}

bool ls_comm_net_progress(struct ls_comm_net *net)
{
    uint64_t before = net->arrivals;
    for (int i = 0; i < 4 && ucp_worker_progress(net->worker); i++)
        ;
    return net->arrivals != before;
}

bool ls_comm_net_connected(const struct ls_comm_net *net, int rank)
{
    return net->peer[rank].ep != NULL;
}

const char *ls_comm_net_broken(const struct ls_comm_net *net, int rank)
{
    return net->peer[rank].broken;
}

/* Lets `request` go on for a while; what is not done then is left to its fate. */
static void give_time(struct ls_comm_net *net, ucs_status_ptr_t request, double seconds)
{
    if (!UCS_PTR_IS_PTR(request))
        return;
    double until = ls_time_monotonic() + seconds;
    while (ucp_request_check_status(request) == UCS_INPROGRESS && ls_time_monotonic() < until)
        ucp_worker_progress(net->worker);
    ucp_request_free(request);
}

void ls_comm_net_close(struct ls_comm_net *net, bool flush)
{
    ucp_request_param_t none = {0};
    if (net->worker && flush)
        give_time(net, ucp_worker_flush_nbx(net->worker, &none), 1.0);
    for (int i = 0; i < net->world->size; i++) {
        if (!net->peer[i].ep)
            continue;
        ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                     .flags = UCP_EP_CLOSE_FLAG_FORCE};
        give_time(net, ucp_ep_close_nbx(net->peer[i].ep, &force), 0.2);
    }
    if (net->address)
        ucp_worker_release_address(net->worker, net->address);
    if (net->worker)
        ucp_worker_destroy(net->worker);
    if (net->context)
        ucp_cleanup(net->context);
    for (struct parcel *p = net->all, *next; p; p = next) {
        next = p->next_of_all;
        free(p);
    }
    free(net->peer);
    free(net);
}

const char *ls_comm_ucx_version(void)
{
    return ucp_get_version_string();
}
