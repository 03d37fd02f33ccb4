/* What slurmstepd does with the plugin for one task, on this machine, for strace: a write to no file before
 * and after marks what is the plugin's own. */
#include "fake.h"

#include "base/base.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void mark(const char *text)
{
    if (write(-1, text, strlen(text)) >= 0)
        abort();
}

static int call(void *module, const char *name)
{
    spank_f *hook = NULL;
    *(void **)&hook = dlsym(module, name);
    if (!hook) {
        fprintf(stderr, "no %s\n", name);
        exit(1);
    }
    mark(name);
    fake->in_init = !strcmp(name, "slurm_spank_init");
    int rc = hook((spank_t)fake, 0, NULL);
    mark("end");
    return rc;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    void *module = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!module) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    fake_new(S_CTX_REMOTE);
    fake_setenv(fake, "CUDA_VISIBLE_DEVICES=0");
    int rc = call(module, "slurm_spank_init") || call(module, "slurm_spank_init_post_opt") ||
             call(module, "slurm_spank_task_init_privileged") ||
             call(module, "slurm_spank_task_init") || call(module, "slurm_spank_exit");
    fputs(fake->log, stderr);
    fake_free(fake);
    dlclose(module);
    return rc != 0;
}
