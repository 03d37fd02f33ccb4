/* A libibverbs whose devices are what FAKE_VERBS lists: "mlx5_0=5 mlx5_1=3" are names and MTU numbers of all their ports.
 * "mlx5_1=closed" cannot be opened, "mlx5_1=mute" answers no query, "none" is no list at all. Compiled with FAKE_OLD it lacks a function. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct device {
    char name[32], value[32];
};
static struct device devices[8];
static void *list[9];
static int opened;

void **ibv_get_device_list(int *n);
void ibv_free_device_list(void **devices);
const char *ibv_get_device_name(void *device);
void *ibv_open_device(void *device);
int ibv_close_device(void *device);
int ibv_query_port(void *device, uint8_t port, void *attr);

void **ibv_get_device_list(int *n)
{
    const char *at = getenv("FAKE_VERBS");
    int length = 0, i = 0;
    if (!strcmp(at, "none")) {
        errno = ENOSYS;
        return NULL;
    }
    for (;
         i < 8 && sscanf(at, " %31[^=]=%31[^ ]%n", devices[i].name, devices[i].value, &length) == 2;
         i++, at += length)
        list[i] = &devices[i];
    list[i] = NULL;
    *n = i;
    return list;
}

/* Whoever forgets to close a device is told by a crash. */
void ibv_free_device_list(void **mine)
{
    if (mine != list || opened)
        abort();
}

const char *ibv_get_device_name(void *device)
{
    return ((struct device *)device)->name;
}

void *ibv_open_device(void *device)
{
    if (!strcmp(((struct device *)device)->value, "closed")) {
        errno = EACCES;
        return NULL;
    }
    opened++;
    return device;
}

int ibv_close_device(void *device)
{
    (void)device;
    opened--;
    return 0;
}

#ifndef FAKE_OLD
int ibv_query_port(void *device, uint8_t port, void *attr)
{
    const int mtu = atoi(((struct device *)device)->value);
    if (port != 1 || !strcmp(((struct device *)device)->value, "mute"))
        return EINVAL;
    memcpy((char *)attr + 2 * sizeof mtu, &mtu, sizeof mtu); /* behind state and max_mtu */
    memset((char *)attr + 3 * sizeof mtu, 0xff, 52 - 3 * sizeof mtu);
    return 0;
}
#endif
