#!/bin/sh
# What a site's TaskProlog does: exports, prints and takes away.
echo "export SITE_SCRATCH=/scratch/$USER"
echo "unset OLDPWD"
echo "print the site's prolog"
