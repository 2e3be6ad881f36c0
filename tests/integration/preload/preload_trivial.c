/* A program that does nothing, and a library that is nothing: what others are measured against.
 * SPDX-License-Identifier: Apache-2.0 */
#ifdef PRELOAD_EMPTY
extern int preload_empty;
int preload_empty;
#else
int main(void) { return 0; }
#endif
