#!/bin/sh
# A site's TaskProlog: exports, prints and unsets variables.
echo "export SITE_SCRATCH=/scratch/$USER"
echo "unset OLDPWD"
echo "print the site's prolog"
