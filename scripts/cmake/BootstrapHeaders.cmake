# Finds headers of other projects. A folder of the user's counts, too: CMAKE_PREFIX_PATH=FOLDER, as a variable of the
# environment, is enough for pip. All that are missing are listed at once.
function(bootstrap_find_header variable header package)
  find_path(${variable} ${header} ${ARGN})
  if(NOT ${variable})
    message(SEND_ERROR "${header} is not there: install ${package}, or add the folder that has include/${header} to CMAKE_PREFIX_PATH")
  endif()
endfunction()
