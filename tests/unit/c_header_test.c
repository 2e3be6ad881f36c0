/* The public header is C99, every function of it can be called from C, and the preprocessor compares its version. */
#include "bootstrap/bootstrap.h"

#if BOOTSTRAP_VERSION < 10000 || BOOTSTRAP_VERSION >= 10000 * (BOOTSTRAP_VERSION_MAJOR + 1)
#error "BOOTSTRAP_VERSION is not the version"
#endif

int c_header_opens_and_closes(void) {
  bootstrap_t* job = 0;
  bootstrap_status_t status = bootstrap_open(&job, 0);
  int rank = bootstrap_rank(job) + bootstrap_size(job) + bootstrap_local_rank(job) + bootstrap_local_size(job);
  rank += bootstrap_node_rank(job) + bootstrap_node_count(job) + bootstrap_cross_rank(job);
  rank += bootstrap_cross_size(job) + bootstrap_device(job) + bootstrap_master_port(job);
  (void)bootstrap_master_addr(job);
  (void)bootstrap_last_error();
  bootstrap_close(job);
  return status == BOOTSTRAP_OK ? rank : -(int)status;
}
