/*
 * The public C interface of libbootstrap: who am I in this Slurm step or MPI job, where do the ranks meet, small
 * exchanges between them, and NCCL communicators.
 * SPDX-License-Identifier: Apache-2.0
 *
 * It reads the environment of a task that srun or Open MPI's mpirun started. With the SPANK plugin in the step the
 * results are the same as the variables RANK, LOCAL_RANK, MASTER_ADDR and so on; without it they are computed from
 * SLURM_* by the same rules. One difference: local and node ranks are the real places here, even if the variables are
 * made for programs that use device 0 (--bootstrap-gpu=first and narrow, MIG). The GPU to use is always
 * bootstrap_device.
 *
 * Opening a handle and reading from it sends, opens and changes nothing. Calls to other ranks are "collective": all
 * ranks of the step make these calls in the same order, one at a time in a process, and each returns within its
 * deadline and two seconds. Over PMIx (srun --mpi=pmix) an error names the missing ranks; in other steps the calls go
 * over PMI-1, which cannot. A rank that refuses a call (LIMIT, INVALID) takes part with its refusal: the ranks that
 * read its value get the same error at once, and calls stay in step. After TIMEOUT or UNAVAILABLE all later calls of
 * the rank fail at once, since ranks may count calls differently: start a new step. bootstrap(3) has the rules for MPI
 * and mpirun.
 *
 * From the first such call to bootstrap_close a helper process of the rank has the session with Slurm. The helper ends
 * with its rank, however the rank ends. A program that loads MPI or PMIx after that call must close its handles first.
 *
 * Threads: a process makes one collective call at a time, also on different handles, since all ranks need one order; a
 * second one waits for the first. Any thread may make the other calls at any time, also on a handle whose collective
 * call still runs, but bootstrap_close must be the last call on its handle, and no thread may change the environment
 * during bootstrap_open. A signal handler may call bootstrap_version and the functions that take a const handle. A
 * forked child may make all but collective calls, which fail there at once if its parent has made one.
 *
 * Environment read: OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK and _LOCAL_SIZE, PMIX_HOSTNAME; SLURM_JOB_ID,
 * SLURM_STEP_ID, SLURM_RESTART_COUNT, SLURM_PROCID, SLURM_LOCALID, SLURM_NPROCS, SLURM_STEP_NUM_TASKS,
 * SLURM_STEP_NODELIST, SLURM_STEP_TASKS_PER_NODE, SLURM_DISTRIBUTION, SLURM_DIST_PLANESIZE, SLURM_STEP_RESV_PORTS,
 * SLURM_STEP_GPUS, CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES, ZE_AFFINITY_MASK, WORLD_SIZE,
 * SLURMD_NODENAME, SLURM_BOOTSTRAP_*, MASTER_ADDR, MASTER_PORT; for exchanges PMIX_NAMESPACE, PMIX_RANK,
 * PMIX_SERVER_URI*, and over PMI-1 PATH, SLURM_CONF, SLURM_SRUN_COMM_HOST, SLURM_SRUN_COMM_PORT;
 * SLURM_BOOTSTRAP_TIMEOUT (seconds, 60), SLURM_BOOTSTRAP_NCCL (the library to load: libnccl.so.2, or librccl.so.1 for
 * AMD GPUs) and SLURM_BOOTSTRAP_PMIX (the libpmix to load, libpmix.so.2).
 */
#ifndef BOOTSTRAP_BOOTSTRAP_H
#define BOOTSTRAP_BOOTSTRAP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define BOOTSTRAP_API __attribute__((visibility("default")))
#else
#define BOOTSTRAP_API
#endif

#define BOOTSTRAP_VERSION_MAJOR 1
#define BOOTSTRAP_VERSION_MINOR 1
#define BOOTSTRAP_VERSION_PATCH 0
/* The version of this header as one number, for #if. */
#define BOOTSTRAP_VERSION (BOOTSTRAP_VERSION_MAJOR * 10000 + BOOTSTRAP_VERSION_MINOR * 100 + BOOTSTRAP_VERSION_PATCH)

typedef enum bootstrap_status {
  BOOTSTRAP_OK = 0,
  BOOTSTRAP_ERROR_INVALID = 1,      /* An argument, or a value in the environment, is wrong. */
  BOOTSTRAP_ERROR_MISSING = 2,      /* The process is no task of a step, or a variable, PMIx or PMI-1 is missing. */
  BOOTSTRAP_ERROR_DISAGREEMENT = 3, /* Ranks differ in call, size or NCCL, two use one GPU, or variables disagree. */
  BOOTSTRAP_ERROR_UNAVAILABLE = 4,  /* The system, the PMIx server or NCCL failed, or a rank ended during the call. */
  BOOTSTRAP_ERROR_UNSUPPORTED = 5,  /* Not possible here, such as a collective call in a forked child. */
  BOOTSTRAP_ERROR_LIMIT = 6,        /* Over 1,048,576 ranks, 64 KiB of a rank, or the limit of a variable. */
  BOOTSTRAP_ERROR_INTERNAL = 7,     /* Out of memory, or a bug. */
  BOOTSTRAP_ERROR_TIMEOUT = 8       /* A rank did not call, or NCCL did not finish, before the deadline. */
} bootstrap_status_t;

typedef struct bootstrap_job bootstrap_t; /* one step as this task sees it */

/* Start from BOOTSTRAP_OPTIONS_INIT, so that a newer library knows which members there are. */
typedef struct bootstrap_options {
  size_t struct_size; /* sizeof(bootstrap_options_t) */
  int timeout_ms;     /* deadline of each collective call in milliseconds; 0: SLURM_BOOTSTRAP_TIMEOUT, or 60,000 */
  int reserved;       /* 0: no uninitialised padding may be taken for a later member */
} bootstrap_options_t;
#define BOOTSTRAP_OPTIONS_INIT \
  { sizeof(bootstrap_options_t), 0, 0 }

/* BOOTSTRAP_VERSION of the library that is loaded. */
BOOTSTRAP_API int bootstrap_version(void);

/*
 * Reads the step. On success *job is a handle that the caller owns and gives back with bootstrap_close(); on failure
 * it is NULL and bootstrap_last_error() has the reason. `options` may be NULL.
 */
BOOTSTRAP_API bootstrap_status_t bootstrap_open(bootstrap_t** job, const bootstrap_options_t* options);

/* Closes the handle; NULL is allowed. */
BOOTSTRAP_API void bootstrap_close(bootstrap_t* job);

/* Who am I. All return -1 for a NULL handle, and cannot fail otherwise. */
BOOTSTRAP_API int bootstrap_rank(const bootstrap_t* job);       /* 0 .. size-1: RANK, hvd.rank() */
BOOTSTRAP_API int bootstrap_size(const bootstrap_t* job);       /* WORLD_SIZE, hvd.size() */
BOOTSTRAP_API int bootstrap_local_rank(const bootstrap_t* job); /* place among the ranks of my node: intra_rank */
BOOTSTRAP_API int bootstrap_local_size(const bootstrap_t* job); /* ranks of my node: intra_size */
BOOTSTRAP_API int bootstrap_node_rank(const bootstrap_t* job);  /* nodes in order of lowest rank: inter_rank */
BOOTSTRAP_API int bootstrap_node_count(const bootstrap_t* job); /* nodes of the step: inter_size */
BOOTSTRAP_API int bootstrap_cross_rank(const bootstrap_t* job); /* my node among those that have my local rank */
BOOTSTRAP_API int bootstrap_cross_size(const bootstrap_t* job); /* how many nodes have my local rank */

/*
 * The GPU of this task: its ordinal among those that the task can use, from 0, as cudaSetDevice takes it. -1 when Slurm
 * gave it none, when GPUs are left to the program (--bootstrap-gpu=off), or for a NULL handle.
 */
BOOTSTRAP_API int bootstrap_device(const bootstrap_t* job);

/* Where the ranks meet. The text belongs to the handle. NULL and -1 for a NULL handle. */
BOOTSTRAP_API const char* bootstrap_master_addr(const bootstrap_t* job);
BOOTSTRAP_API int bootstrap_master_port(const bootstrap_t* job);

/*
 * A small allgather, collective: `bytes` bytes (0 to 65,536, the same on all ranks) from `mine` of every rank arrive
 * in `all`, in order of rank; `all` has room for bytes * bootstrap_size() bytes. Slurm keeps these bytes in memory
 * on every node until the step ends, and each later call carries them, too: use it for ids and addresses, not for data,
 * and for some hundred calls. Sizes are checked before anything is copied.
 */
BOOTSTRAP_API bootstrap_status_t bootstrap_exchange(bootstrap_t* job, const void* mine, size_t bytes, void* all);

/*
 * The `bytes` bytes (0 to 65,536, the same on all ranks) in `data` of rank `root` arrive in `data` of all others.
 * Collective. The other ranks send nothing: for an address in a large step.
 */
BOOTSTRAP_API bootstrap_status_t bootstrap_broadcast(bootstrap_t* job, void* data, size_t bytes, int root);

/* Returns when all ranks of the step have called it. Collective. */
BOOTSTRAP_API bootstrap_status_t bootstrap_barrier(bootstrap_t* job);

/* Which ranks share a communicator. */
typedef enum bootstrap_group {
  BOOTSTRAP_WORLD = 0, /* all, in order of rank */
  BOOTSTRAP_NODE = 1,  /* those of my node, in order of local rank */
  BOOTSTRAP_CROSS = 2  /* those with my local rank, in order of node rank */
} bootstrap_group_t;

/* An ncclUniqueId: 128 bytes that let any process take a rank's place. Keep it in memory, and clear it after use. */
#define BOOTSTRAP_UNIQUE_ID_BYTES 128
typedef struct bootstrap_unique_id {
  char internal[BOOTSTRAP_UNIQUE_ID_BYTES];
} bootstrap_unique_id_t;

/* Start from BOOTSTRAP_COMM_OPTIONS_INIT. */
typedef struct bootstrap_comm_options {
  size_t struct_size; /* sizeof(bootstrap_comm_options_t) */
  int timeout_ms;     /* 0: as given to bootstrap_open */
  int roots;          /* unique ids; 0: one for each 256 ranks from NCCL 2.23 on, else 1. The same on all ranks, and
                         not more than the largest group of the call has */
  int device;      /* CUDA ordinal to make current before; -1: bootstrap_device(), or the current one if that is -1 */
  int nonblocking; /* 0: later calls on the communicator block as usual. 1: the communicator is non-blocking, later
                      calls may return ncclInProgress, and one that is not ready in time is aborted */
  const void* nccl_config; /* NULL, or an ncclConfig_t from NCCL_CONFIG_INITIALIZER: CTAs, commName, trafficClass and so
                              on. It is copied; its `blocking` counts. Keep what it points to while NCCL needs it */
} bootstrap_comm_options_t;
#define BOOTSTRAP_COMM_OPTIONS_INIT \
  { sizeof(bootstrap_comm_options_t), 0, 0, -1, 0, 0 }

struct ncclComm; /* ncclComm_t is a pointer to it */

/*
 * An NCCL communicator of the group that this rank is in. Collective over the step. The caller owns *comm and ends it
 * with ncclCommDestroy(). NCCL is the copy that the process has, else libnccl.so.2, or RCCL's librccl.so.1 for AMD
 * GPUs; 2.14 or newer. Before NCCL is called the ranks agree: the same NCCL version everywhere, no two ranks of a node
 * on one GPU (unless NCCL is set to accept it, by NCCL_MULTI_RANK_GPU_ENABLE=1 from 2.30.3 on or by different
 * NCCL_HOSTID). A rank on which NCCL fails returns at once. The others return at their deadline with its message, or
 * with the ranks that do not answer; over PMI-1 without either. NCCL's own calls would wait forever.
 */
BOOTSTRAP_API bootstrap_status_t bootstrap_nccl_comm(bootstrap_t* job, bootstrap_group_t group,
                                                     const bootstrap_comm_options_t* options, struct ncclComm** comm);

/*
 * The same for any ranks: `ranks` lists the members of my communicator in the order of their ranks in it, this one
 * among them, and all members give the same list. Collective over the step, as MPI_Comm_create: different ranks may
 * give different lists, and a rank that is in none gives count 0 and gets NULL.
 */
BOOTSTRAP_API bootstrap_status_t bootstrap_nccl_comm_ranks(bootstrap_t* job, const int* ranks, int count,
                                                           const bootstrap_comm_options_t* options,
                                                           struct ncclComm** comm);

/*
 * Unique ids alone, for programs that call ncclCommInitRank (count = 1) or ncclCommInitRankScalable (count = nId)
 * themselves: the same ids in the same order on all ranks of the group. Collective over the step. The ranks that made
 * one must stay alive until the communicator is ready.
 */
BOOTSTRAP_API bootstrap_status_t bootstrap_nccl_unique_ids(bootstrap_t* job, bootstrap_group_t group,
                                                           bootstrap_unique_id_t* ids, int count);

/*
 * The same for any ranks: `ranks` lists `size` of them, as for bootstrap_nccl_comm_ranks. A rank that is in no group
 * gives size 0, and its `ids` stay as they are.
 */
BOOTSTRAP_API bootstrap_status_t bootstrap_nccl_unique_ids_ranks(bootstrap_t* job, const int* ranks, int size,
                                                                 bootstrap_unique_id_t* ids, int count);

/*
 * One sentence about the last failure in this thread, "" if there was none. It belongs to the library and is valid
 * until the next call of this library in the thread.
 */
BOOTSTRAP_API const char* bootstrap_last_error(void);

#ifdef __cplusplus
}
#endif

#endif /* BOOTSTRAP_BOOTSTRAP_H */
