/* A libnccl.so.2 that knows its version, and nothing else. */
int fake_nccl_version = 22105;
int ncclGetVersion(int *version);

int ncclGetVersion(int *version)
{
    *version = fake_nccl_version;
    return fake_nccl_version < 0; /* ncclUnhandledCudaError, say */
}
