# Debian and RPM packages, made by `cmake --workflow --preset package`: the plugin, which belongs to one Slurm release, the
# library, the command, and what is needed to build with the library. Nothing is switched on by installing them.
set(CPACK_PACKAGE_VENDOR "slurm-bootstrap")
set(CPACK_PACKAGE_CONTACT "${BOOTSTRAP_MAINTAINER}")
set(CPACK_PACKAGE_HOMEPAGE_URL "${BOOTSTRAP_HOMEPAGE}")
set(CPACK_PACKAGING_INSTALL_PREFIX ${CMAKE_INSTALL_PREFIX})
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)

set(CPACK_COMPONENTS_ALL library command development)
if(BOOTSTRAP_SPANK)
  list(APPEND CPACK_COMPONENTS_ALL plugin)
endif()
# Component, package, one line and a few more of what it is.
function(_bootstrap_package component name summary text)
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_DESCRIPTION "${summary}\n${text}" PARENT_SCOPE)
  string(REGEX REPLACE "-dev$" "-devel" rpm_name ${name})
  set(CPACK_RPM_${upper}_PACKAGE_NAME ${rpm_name} PARENT_SCOPE)
  set(CPACK_RPM_${upper}_PACKAGE_SUMMARY ${summary} PARENT_SCOPE)
  set(CPACK_RPM_${upper}_PACKAGE_DESCRIPTION ${text} PARENT_SCOPE)
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE RENAME copyright
          DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name} COMPONENT ${component})
endfunction()
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # CPack would put the project's line before that of each package

_bootstrap_package(plugin slurm-bootstrap-plugin "SPANK plugin that starts distributed training with srun alone"
  "Gives each task of a Slurm step its rank, a meeting point and a GPU of its own.\nIt serves one Slurm release, and is switched on by a link in plugstack.conf.d.")
_bootstrap_package(library libbootstrap0 "ranks and NCCL communicators of a Slurm step"
  "Small exchanges between ranks over PMIx, and what LD_PRELOAD adds to a program.")
_bootstrap_package(command slurm-bootstrap "explain, check and measure how training starts on Slurm"
  "The command slurm-bootstrap, its manual pages, and examples.")
if(TARGET slurm-bootstrap-near)
  list(APPEND CPACK_COMPONENTS_ALL near)
  _bootstrap_package(near slurm-bootstrap-near "bind tasks of a Slurm step to the cores near their GPU"
    "What slurm-bootstrap near starts: it alone needs libhwloc.")
  set(CPACK_DEBIAN_NEAR_PACKAGE_SECTION admin)
endif()
_bootstrap_package(development libbootstrap-dev "ranks and NCCL communicators of a Slurm step (development)"
  "The header, its manual page, and files for CMake and pkg-config.")

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
option(CPACK_DEBIAN_PACKAGE_SHLIBDEPS "Let dpkg-shlibdeps find the dependencies, which it can on a Debian of the same processor" ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_RPM_COMPONENT_INSTALL ON)
set(CPACK_RPM_FILE_NAME RPM-DEFAULT)
set(CPACK_RPM_PACKAGE_LICENSE "Apache-2.0")
set(CPACK_RPM_SPEC_MORE_DEFINE "%define packager ${CPACK_PACKAGE_CONTACT}")
if(DEFINED ENV{SOURCE_DATE_EPOCH}) # scripts/release: the same files each time
  string(APPEND CPACK_RPM_SPEC_MORE_DEFINE "
%define use_source_date_epoch_as_buildtime 1
%define clamp_mtime_to_source_date_epoch 1
%define _buildhost slurm-bootstrap")
endif()
set(CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION
    /etc /etc/slurm /usr/lib64/pkgconfig /usr/lib64/cmake /usr/libexec /usr/share/man /usr/share/man/man1
    /usr/share/man/man3 /usr/share/man/man7 /usr/share/man/man8 /usr/share/doc /usr/lib64/slurm)
foreach(_component IN ITEMS PLUGIN COMMAND)
  set(CPACK_DEBIAN_${_component}_PACKAGE_SECTION admin)
endforeach()
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
# CPack's own shlibs would warn of the plugin, which no program links.
set(_control ${PROJECT_BINARY_DIR}/packaging)
file(WRITE ${_control}/triggers "activate-noawait ldconfig\n")
file(WRITE ${_control}/shlibs "libbootstrap 0 libbootstrap0 (>= ${PROJECT_VERSION})\n")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${_control}/triggers ${_control}/shlibs)
set(CPACK_RPM_LIBRARY_POST_INSTALL_SCRIPT_FILE ${PROJECT_SOURCE_DIR}/etc/packages/find-library.sh)
set(CPACK_RPM_LIBRARY_POST_UNINSTALL_SCRIPT_FILE ${PROJECT_SOURCE_DIR}/etc/packages/find-library.sh)
# The libraries that carry exchanges. Only suggested: Slurm's own packages have another libpmi, and sites another PMIx.
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SUGGESTS "libpmi0 | slurm-smd-libpmi0, libpmix2")
# For slurm-bootstrap status, where and supervise, which are Python.
set(CPACK_DEBIAN_COMMAND_PACKAGE_RECOMMENDS python3)
set(CPACK_RPM_COMMAND_PACKAGE_SUGGESTS python3)
# The version names the Slurm: 1.1.0-1+slurm22.05, or as RPM 1.1.0-1.slurm22.05.
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_RPM_PACKAGE_RELEASE 1)
if(BOOTSTRAP_SPANK)
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" _release ${SlurmHeaders_VERSION})
  string(APPEND CPACK_DEBIAN_PACKAGE_RELEASE "+slurm${_release}")
  string(APPEND CPACK_RPM_PACKAGE_RELEASE ".slurm${_release}")
endif()
set(_same "libbootstrap0 (= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS ${_same})
set(CPACK_DEBIAN_COMMAND_PACKAGE_RECOMMENDS ${_same})  # for run --horovod
set(CPACK_RPM_DEVELOPMENT_PACKAGE_REQUIRES "libbootstrap0 = ${PROJECT_VERSION}")

if(BOOTSTRAP_SPANK)
  # Slurm refuses a plugin of another release (major.minor), so the package goes with that release alone. Debian's package
  # is slurm-wlm-basic-plugins, on which slurmd and slurm-client depend; Slurm's own are slurm-smd and, as RPM, slurm.
  string(REGEX MATCH "[0-9]+$" _minor ${_release})
  math(EXPR _next "1${_minor} + 1")
  string(SUBSTRING ${_next} 1 -1 _next)
  string(REGEX REPLACE "[0-9]+$" "${_next}" _next ${_release})
  set(_at_least ">= ${_release}~")
  set(_below "<< ${_next}~")
  set(CPACK_DEBIAN_PLUGIN_PACKAGE_DEPENDS "${_same}, slurm-wlm-basic-plugins (${_at_least}) | slurm-smd (${_at_least}), slurm-wlm-basic-plugins (${_below}) | slurm-smd (${_below})")
  set(CPACK_DEBIAN_PLUGIN_PACKAGE_RECOMMENDS slurm-bootstrap)
  set(CPACK_RPM_PLUGIN_PACKAGE_REQUIRES
      "libbootstrap0 = ${PROJECT_VERSION}, slurm >= ${_release}, slurm < ${_next}")
  set(_before_removal ${PROJECT_SOURCE_DIR}/etc/packages/before-removal.sh)
  configure_file(${_before_removal} ${_control}/prerm COPYONLY)
  set(CPACK_DEBIAN_PLUGIN_PACKAGE_CONTROL_EXTRA ${_control}/prerm)
  set(CPACK_RPM_PLUGIN_PRE_UNINSTALL_SCRIPT_FILE ${_before_removal})
endif()

include(CPack)
