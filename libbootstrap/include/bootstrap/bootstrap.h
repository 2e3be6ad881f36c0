/*
 * The public C interface of libbootstrap: who am I in this Slurm step, and where do the ranks meet.
 * SPDX-License-Identifier: Apache-2.0
 *
 * It reads the environment of a task that srun started; with the SPANK plugin in the step the answers are the same as
 * the variables RANK, LOCAL_RANK, MASTER_ADDR and so on, without it they are computed from SLURM_* by the same rules.
 * One difference: local and node ranks are the true places here, also where the variables are made for programs that
 * take device 0 (--bootstrap-gpu=first and narrow, MIG). The GPU to use is bootstrap_device in any case. Nothing is
 * sent, opened or changed. Calls on different handles may run at the same time in several threads.
 *
 * Environment read: SLURM_JOB_ID, SLURM_STEP_ID, SLURM_RESTART_COUNT, SLURM_PROCID, SLURM_LOCALID, SLURM_NPROCS,
 * SLURM_STEP_NUM_TASKS,
 * SLURM_STEP_NODELIST, SLURM_STEP_TASKS_PER_NODE, SLURM_DISTRIBUTION, SLURM_DIST_PLANESIZE, SLURM_STEP_RESV_PORTS,
 * SLURM_STEP_GPUS, CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES, ZE_AFFINITY_MASK, WORLD_SIZE, SLURMD_NODENAME,
 * SLURM_BOOTSTRAP_LAYOUT, BOOTSTRAP_*, MASTER_ADDR, MASTER_PORT.
 */
#ifndef BOOTSTRAP_BOOTSTRAP_H
#define BOOTSTRAP_BOOTSTRAP_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define BOOTSTRAP_API __attribute__((visibility("default")))
#else
#define BOOTSTRAP_API
#endif

#define BOOTSTRAP_VERSION_MAJOR 0
#define BOOTSTRAP_VERSION_MINOR 1
#define BOOTSTRAP_VERSION_PATCH 0

typedef enum bootstrap_status {
  BOOTSTRAP_OK = 0,
  BOOTSTRAP_ERROR_INVALID = 1,      /* an argument, or a value in the environment, does not mean what it should */
  BOOTSTRAP_ERROR_MISSING = 2,      /* not a task of a Slurm step, or a variable of it is gone */
  BOOTSTRAP_ERROR_DISAGREEMENT = 3, /* two sources say different things about this step */
  BOOTSTRAP_ERROR_UNAVAILABLE = 4,  /* the system refused */
  BOOTSTRAP_ERROR_UNSUPPORTED = 5,  /* understood, and not possible here */
  BOOTSTRAP_ERROR_LIMIT = 6,        /* larger than supported: 1,048,576 ranks, 64 KiB a variable */
  BOOTSTRAP_ERROR_INTERNAL = 7      /* out of memory, or a bug */
} bootstrap_status_t;

typedef struct bootstrap_job bootstrap_t;             /* one step as this task sees it */
typedef struct bootstrap_options bootstrap_options_t; /* none yet: pass NULL */

/* Version of the library that is loaded, as 10000 * major + 100 * minor + patch. */
BOOTSTRAP_API int bootstrap_version(void);

/*
 * Reads the step. On success *job is a handle that the caller owns and gives back with bootstrap_close(); on failure
 * it is NULL and bootstrap_last_error() says why.
 */
BOOTSTRAP_API bootstrap_status_t bootstrap_open(bootstrap_t** job, const bootstrap_options_t* options);

/* Gives the handle back; NULL is fine. */
BOOTSTRAP_API void bootstrap_close(bootstrap_t* job);

/* Who am I. All answer -1 for a NULL handle and cannot fail otherwise. */
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
 * One sentence about the last failure in this thread, "" if there was none. It belongs to the library and is valid
 * until the next call of this library in the thread.
 */
BOOTSTRAP_API const char* bootstrap_last_error(void);

#ifdef __cplusplus
}
#endif

#endif /* BOOTSTRAP_BOOTSTRAP_H */
