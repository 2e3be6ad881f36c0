"""A campaign: many cases of a kind. With --full it runs all of them, or as many as --minutes allow; else a few of them."""

# SPDX-License-Identifier: Apache-2.0

import time
from concurrent.futures import ThreadPoolExecutor

NOT_BEGUN = object()


class Campaign:
    """The campaign of one test, whose time begins with its first case. The figure of a campaign that was cut short has the reason."""

    def __init__(self, is_full, minutes, seed):
        self.is_full = is_full
        self.minutes = minutes
        self.seed = seed
        self.planned = self.done = 0
        self._end = None

    def size(self, in_full, in_short):
        return in_full if self.is_full else in_short

    def is_over(self):
        if self._end is None:
            self._end = time.monotonic() + 60 * self.minutes
        return self.is_full and time.monotonic() >= self._end

    def each(self, cases):
        """Yields the cases one after the other, as long as there is time."""
        cases = list(cases)
        self.planned += len(cases)
        for case in cases:
            if self.is_over():
                return
            yield case
            self.done += 1

    def run(self, work, cases, at_once):
        """[(case, work(case))] of the cases that began before the time was over; several run at once."""
        cases = list(cases)
        self.planned += len(cases)

        def unless_over(case):
            return NOT_BEGUN if self.is_over() else work(case)

        with ThreadPoolExecutor(at_once) as pool:
            pairs = [pair for pair in zip(cases, pool.map(unless_over, cases)) if pair[1] is not NOT_BEGUN]
        self.done += len(pairs)
        return pairs

    @property
    def is_whole(self):
        return self.done >= self.planned

    @property
    def why(self):
        return "" if self.is_whole else f"{self.done:,} of {self.planned:,} in {self.minutes:g} minutes"
