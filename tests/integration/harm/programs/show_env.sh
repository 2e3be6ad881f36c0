#!/bin/bash
# Prints the whole environment, one line for each variable with the task's number before it.
env -0 | tr '\n\0' ' \n' | sed "s/^/${SLURM_PROCID:-none}: /"
