"""Campaigns: with --full all cases, or as many as the time allows, and a figure with their number."""

# SPDX-License-Identifier: Apache-2.0

import pytest

import conftest
from campaign import Campaign


@pytest.fixture
def figures(monkeypatch):
    kept = []
    monkeypatch.setattr(conftest, "keep", kept.append)
    return kept


def full(minutes=60):
    return Campaign(is_full=True, minutes=minutes, seed=7)


def test_no_case_begins_when_the_time_is_over():
    campaign, begun = full(minutes=1), []
    campaign.is_over = lambda: len(begun) >= 3
    assert campaign.run(lambda case: begun.append(case), range(9), 1) == [(0, None), (1, None), (2, None)]
    assert list(campaign.each(range(2))) == []
    assert not campaign.is_whole and campaign.why == "3 of 11 in 1 minutes"


def test_the_figure_of_a_campaign_cut_short_is_not_met(figure, figures, campaign):
    figure("M1", got="0 failed", met=True, why="a busy machine")
    campaign.planned, campaign.done = 1000, 12
    figure("M1", got="0 failed", met=True, is_full=True, why="a busy machine")
    whole, cut = figures
    assert whole.met and whole.why == "a busy machine"
    assert not cut.met and not cut.is_full and cut.why == f"12 of 1,000 in {campaign.minutes:g} minutes; a busy machine"
