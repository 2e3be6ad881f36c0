/*
 * The part of NCCL that the double has: names, values and layouts as in nccl.h, for programs that run against it.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The double (libnccl.so.2 in folders by version, and RCCL's librccl.so.1) makes communicators as NCCL does: a root
 * that listens, ranks that check in over TCP, a ring between them, a port of each rank's proxy. It needs no GPU:
 * buffers are host memory, a stream is ignored, and a call is done when it returns (or, on a non-blocking
 * communicator, when ncclCommGetAsyncError returns it). NCCL_SOCKET_IFNAME, NCCL_HOSTID, NCCL_COMM_ID,
 * NCCL_COMM_BLOCKING and NCCL_DEBUG are honoured.
 *
 * It fails as NCCL was seen to fail. Two ranks on one GPU: these two fail, the others hang on one node, and get
 * ncclRemoteError on several. A stranger closes its connection: 2.14 hangs, 2.18 to 2.23 fail; 2.28 ignores it until
 * the ranks are connected, and hangs if a stranger connects to the port of a proxy. A rank that fails leaves its
 * connections open as long as its process lives. ncclCommAbort takes 0.9 s while the ranks connect.
 *
 * NCCL_DOUBLE_LOG names a file that gets one line for each call. NCCL_DOUBLE_INIT makes each rank misbehave in
 * ncclCommInitRank; "fail:2" only rank 2 of the communicator. "stall": it never checks in. The others happen once it
 * is connected: "fail" (out of memory), "late-fail" (the same three seconds later), "stop" (the process stops),
 * "kill" (it is killed), "slow" (half a second before it connects to the proxies).
 */
#ifndef TESTS_DOUBLES_NCCL_DOUBLE_H
#define TESTS_DOUBLES_NCCL_DOUBLE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ncclComm* ncclComm_t;
#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
  char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7
} ncclResult_t;

typedef enum { ncclFloat32 = 7 } ncclDataType_t;
typedef enum { ncclSum = 0 } ncclRedOp_t;
typedef struct CUstream_st* cudaStream_t;

typedef struct {
  size_t size;
  unsigned magic;   /* 0xcafebeef */
  unsigned version; /* of the header that the program was built with */
  int blocking;
} ncclConfig_t;

ncclResult_t ncclGetVersion(int* version);
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t* config);
ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int nranks, int rank, int ids, ncclUniqueId* id,
                                      ncclConfig_t* config); /* 2.23 */
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error);
ncclResult_t ncclCommCount(const ncclComm_t comm, int* count);
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank);
ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t comm, cudaStream_t stream);
const char* ncclGetErrorString(ncclResult_t result);
const char* ncclGetLastError(ncclComm_t comm);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_DOUBLES_NCCL_DOUBLE_H */
