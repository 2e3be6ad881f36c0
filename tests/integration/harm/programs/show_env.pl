#!/usr/bin/perl
# Prints the whole environment, one line for each variable with the task's number before it.
my $rank = $ENV{SLURM_PROCID} // 'none';
print map { "$rank: $_=$ENV{$_}\n" =~ s/\n(?=.)/ /gr } sort keys %ENV;
