# Slurm's public headers. The plugin is valid for one Slurm release (major.minor): the one of these headers.
# Sets SlurmHeaders_FOUND, SlurmHeaders_VERSION and the target Slurm::Headers.
find_path(SlurmHeaders_INCLUDE_DIR slurm/spank.h HINTS ENV SLURM_ROOT PATH_SUFFIXES include)
if(SlurmHeaders_INCLUDE_DIR AND EXISTS ${SlurmHeaders_INCLUDE_DIR}/slurm/slurm_version.h)
  file(STRINGS ${SlurmHeaders_INCLUDE_DIR}/slurm/slurm_version.h _line REGEX "define SLURM_VERSION_NUMBER 0x")
  string(REGEX REPLACE ".*0x([0-9a-fA-F]+).*" "0x\\1" _number "${_line}")
  math(EXPR _major "(${_number} >> 16) & 0xff")
  math(EXPR _minor "(${_number} >> 8) & 0xff")
  math(EXPR _micro "${_number} & 0xff")
  if(_minor LESS 10)
    set(_minor "0${_minor}")
  endif()
  set(SlurmHeaders_VERSION ${_major}.${_minor}.${_micro})
else()
  unset(SlurmHeaders_INCLUDE_DIR CACHE)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(SlurmHeaders
  REQUIRED_VARS SlurmHeaders_INCLUDE_DIR VERSION_VAR SlurmHeaders_VERSION
  REASON_FAILURE_MESSAGE
    "slurm/spank.h and slurm/slurm_version.h were not found. Install Slurm's development package (Debian: libslurm-dev, RPM: slurm-devel), or set SLURM_ROOT to the prefix that holds include/slurm, or configure with -DBOOTSTRAP_SPANK=OFF to build the library alone")

if(SlurmHeaders_FOUND AND NOT TARGET Slurm::Headers)
  add_library(Slurm::Headers INTERFACE IMPORTED)
  target_include_directories(Slurm::Headers SYSTEM INTERFACE ${SlurmHeaders_INCLUDE_DIR})
endif()
