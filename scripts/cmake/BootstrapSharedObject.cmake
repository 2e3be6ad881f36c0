# Only the owner may write to a built file, whatever the umask: else the plugin neither starts nor preloads it.
function(_bootstrap_own target)
  add_custom_command(TARGET ${target} POST_BUILD COMMAND chmod go-w $<TARGET_FILE:${target}> VERBATIM)
endfunction()

# Before 2.34 glibc has these names in libpthread and libdl. A shared object that is linked to a file with these names, without
# versions and with the loader's SONAME, runs with any glibc and needs no other file (libbootstrap/probe/old_glibc.cc).
include(CheckFunctionExists)
check_function_exists(closefrom BOOTSTRAP_GLIBC_2_34)
if(NOT BOOTSTRAP_GLIBC_2_34)
  set(_loader ld-linux-x86-64.so.2)
  if(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
    set(_loader ld-linux-aarch64.so.1)
  endif()
  set(_names dladdr dladdr1 dlclose dlerror dlopen dlsym pthread_attr_getstacksize pthread_attr_setstacksize
      pthread_condattr_setclock pthread_create pthread_detach pthread_join pthread_key_create pthread_key_delete
      pthread_getspecific pthread_once pthread_rwlock_rdlock pthread_rwlock_unlock pthread_rwlock_wrlock
      pthread_setspecific pthread_sigmask
      __tls_get_addr __stack_chk_guard) # the loader's own
  list(TRANSFORM _names REPLACE "(.+)" "void \\1(void) {}\n")
  file(WRITE ${PROJECT_BINARY_DIR}/parts_of_glibc.c ${_names})
  add_library(bootstrap_parts_of_glibc SHARED ${PROJECT_BINARY_DIR}/parts_of_glibc.c)
  set_target_properties(bootstrap_parts_of_glibc PROPERTIES C_VISIBILITY_PRESET default NO_SONAME ON UNITY_BUILD OFF)
  target_link_options(bootstrap_parts_of_glibc PRIVATE -Wl,-soname,${_loader})
  add_library(bootstrap_old_glibc STATIC libbootstrap/probe/old_glibc.cc libbootstrap/probe/old_libm.cc)
  set_target_properties(bootstrap_old_glibc PROPERTIES UNITY_BUILD OFF)
endif()

# How the two shared objects are linked so that any process can load them: nothing needed but libc, nothing exported
# but the names in the version script, and none of their functions replaced by names of the host program.
function(bootstrap_harden_shared_object target version_script)
  target_link_options(${target} PRIVATE
    -Wl,--version-script=${version_script}
    -Wl,-Bsymbolic -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack -Wl,--as-needed
    # Unused parts of libstdc++.a would ask for names of the newest glibc, which older containers do not have.
    -Wl,--gc-sections)
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${version_script})
  if(NOT BOOTSTRAP_SANITIZE)
    # A dynamic libstdc++ would make srun and user programs load the one that happens to be on LD_LIBRARY_PATH.
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc)
  endif()
  if(TARGET bootstrap_parts_of_glibc)
    target_link_libraries(${target} PRIVATE bootstrap_old_glibc $<TARGET_FILE:bootstrap_parts_of_glibc>)
    add_dependencies(${target} bootstrap_parts_of_glibc)
    set_target_properties(${target} PROPERTIES SKIP_BUILD_RPATH ON)
  endif()
  _bootstrap_own(${target})
endfunction()

# The same for a program that is started in every step, in any environment of a user: no library but libc.
function(bootstrap_harden_program target)
  target_link_options(${target} PRIVATE -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack -Wl,--as-needed -Wl,--gc-sections)
  if(NOT BOOTSTRAP_SANITIZE)
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc)
  endif()
  _bootstrap_own(${target})
endfunction()
