"""The benchmarks behind scripts/bench: one module for each thing that is measured."""

# SPDX-License-Identifier: Apache-2.0
