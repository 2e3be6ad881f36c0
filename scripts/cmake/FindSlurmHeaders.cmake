# Slurm's public headers. The plugin is valid for one Slurm release (major.minor): the one of these headers.
# Sets SlurmHeaders_FOUND, SlurmHeaders_VERSION and the target Slurm::Headers.
# SLURM_ROOT, in the environment or with -D, is the prefix of another Slurm than the one that CMake finds by itself.
if(DEFINED ENV{SLURM_ROOT})
  # Kept, because `cmake --build` may configure again without the variable.
  set(SLURM_ROOT "$ENV{SLURM_ROOT}" CACHE PATH "The prefix of Slurm, if not the one that CMake finds by itself" FORCE)
endif()
# Found anew each time: after an upgrade of Slurm, or with another SLURM_ROOT, a build folder would keep the old ones.
unset(SlurmHeaders_INCLUDE_DIR CACHE)
unset(SlurmHeaders_INCLUDE_DIR)
unset(SlurmHeaders_VERSION)
if(SLURM_ROOT)
  find_path(SlurmHeaders_INCLUDE_DIR slurm/spank.h PATHS ${SLURM_ROOT}/include NO_DEFAULT_PATH NO_CACHE)
else()
  find_path(SlurmHeaders_INCLUDE_DIR slurm/spank.h NO_CACHE)
endif()
string(REGEX REPLACE "/$" "" SlurmHeaders_INCLUDE_DIR "${SlurmHeaders_INCLUDE_DIR}")
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
  # The plugin names the version of its headers, which is read here.
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${SlurmHeaders_INCLUDE_DIR}/slurm/slurm_version.h)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(SlurmHeaders
  REQUIRED_VARS SlurmHeaders_INCLUDE_DIR SlurmHeaders_VERSION VERSION_VAR SlurmHeaders_VERSION
  REASON_FAILURE_MESSAGE
    "slurm/spank.h and slurm/slurm_version.h were not found. Install Slurm's development package (Debian: libslurm-dev, RPM: slurm-devel), or set SLURM_ROOT to the prefix that holds include/slurm, or configure with -DBOOTSTRAP_SPANK=OFF to build the library alone")

if(SlurmHeaders_FOUND)
  if(BOOTSTRAP_SLURM_BEFORE AND NOT BOOTSTRAP_SLURM_BEFORE STREQUAL SlurmHeaders_VERSION)
    message(STATUS "This build folder was for Slurm ${BOOTSTRAP_SLURM_BEFORE}, and is now for ${SlurmHeaders_VERSION}")
  endif()
  set(BOOTSTRAP_SLURM_BEFORE ${SlurmHeaders_VERSION} CACHE INTERNAL "Slurm of the last configuration")
  # Without SLURM_ROOT the plugin is meant for the Slurm of this machine.
  find_program(_slurm NAMES slurmd srun NO_CACHE)
  if(_slurm AND NOT SLURM_ROOT)
    execute_process(COMMAND ${_slurm} -V OUTPUT_VARIABLE _said ERROR_QUIET)
    string(REGEX MATCH "[0-9]+\\.[0-9]+" _installed "${_said}")
    if(_installed AND NOT SlurmHeaders_VERSION MATCHES "^${_installed}\\.")
      message(WARNING
        "The plugin is built for Slurm ${SlurmHeaders_VERSION}, whose headers are in ${SlurmHeaders_INCLUDE_DIR}, but ${_slurm} is of Slurm ${_installed}, which refuses it. Set SLURM_ROOT to the prefix of the Slurm that will load it")
    endif()
  endif()
endif()

if(SlurmHeaders_FOUND AND NOT TARGET Slurm::Headers)
  add_library(Slurm::Headers INTERFACE IMPORTED)
  target_include_directories(Slurm::Headers SYSTEM INTERFACE ${SlurmHeaders_INCLUDE_DIR})
endif()
