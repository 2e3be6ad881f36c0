#!/bin/sh
# After the library was installed or removed by rpm: the loader's cache. dpkg does this by a trigger.
/sbin/ldconfig
