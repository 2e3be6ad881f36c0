# Where the umask lets a group write to what is built: the plugin neither starts nor preloads such a file.
function(_bootstrap_own target)
  add_custom_command(TARGET ${target} POST_BUILD COMMAND chmod go-w $<TARGET_FILE:${target}> VERBATIM)
endfunction()

# How the two shared objects are linked so that any process can load them: nothing needed but libc, nothing exported
# but the names in the version script, nothing of theirs replaced by names of the host program.
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
  _bootstrap_own(${target})
endfunction()

# The same for a program that is started in every step, in whatever environment the user has: no library but libc.
function(bootstrap_harden_program target)
  target_link_options(${target} PRIVATE -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack -Wl,--as-needed -Wl,--gc-sections)
  if(NOT BOOTSTRAP_SANITIZE)
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc)
  endif()
  _bootstrap_own(${target})
endfunction()
