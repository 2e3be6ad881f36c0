/* A program that does nothing, and an empty library: the baselines of measurements.
 * SPDX-License-Identifier: Apache-2.0 */
#ifdef PRELOAD_EMPTY
extern int preload_empty;
int preload_empty;
#else
int main(void) { return 0; }
#endif
