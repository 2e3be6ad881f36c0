// A SPANK plugin with options of the names that ours have, as another site's plugin may: Slurm gives each name to the
// plugin that comes first in plugstack.conf. It prints what it was given.
// SPDX-License-Identifier: Apache-2.0
#include <slurm/spank.h>
#include <stddef.h>

SPANK_PLUGIN(clash_double, 1)

static int tell(int value, const char* argument, int is_remote) {
  (void)value;
  if (!is_remote) slurm_error("clash_double: given %s", argument != NULL ? argument : "nothing");
  return 0;
}

int slurm_spank_init(spank_t spank, int count, char** arguments) {
  (void)count, (void)arguments;
  // Slurm takes pointers to what need not be changed, without saying so.
  static char port[] = "bootstrap-port", mode[] = "bootstrap", value[] = "VALUE", usage[] = "of another plugin";
  struct spank_option options[] = {{port, value, usage, 1, 0, tell}, {mode, value, usage, 1, 1, tell}};
  for (size_t place = 0; place < sizeof options / sizeof *options; ++place) {
    (void)spank_option_register(spank, &options[place]);
  }
  return 0;
}
