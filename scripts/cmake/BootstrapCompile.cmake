# Language level, warnings, hardening and sanitizers, the same for every target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 99)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
# A static library is compiled without waiting for the libraries that it needs.
set(CMAKE_OPTIMIZE_DEPENDENCIES ON)
# Eight files take half the time if they are compiled as one.
if(NOT DEFINED CMAKE_UNITY_BUILD)
  set(CMAKE_UNITY_BUILD ON)
  set(CMAKE_UNITY_BUILD_BATCH_SIZE 8)
endif()
# The hosts of a test cluster see the build folder by another path.
set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)

add_compile_options(-Wall -Wextra -Wconversion -Wshadow)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 16)
  add_compile_options(-Wno-free-nonheap-object) # it warns of what std::vector frees itself
endif()
if(CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo" AND NOT BOOTSTRAP_SANITIZE)
  add_compile_options(-fstack-protector-strong -D_FORTIFY_SOURCE=2)
  # Functions and lines for the debugger: types and variables would take a third of the time of a build.
  add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-g1>)
  # A shared object has only the functions that it calls.
  add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-ffunction-sections> $<$<COMPILE_LANGUAGE:C,CXX>:-fdata-sections>)
endif()

if(BOOTSTRAP_SANITIZE)
  add_compile_options(-fsanitize=${BOOTSTRAP_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${BOOTSTRAP_SANITIZE})
  # gcc 12 warns of std::string's own memcpy when it optimises what ThreadSanitizer has instrumented.
  if(BOOTSTRAP_SANITIZE STREQUAL "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-array-bounds -Wno-restrict -Wno-stringop-overflow)
  endif()
endif()
if(BOOTSTRAP_COVERAGE)
  add_compile_options(--coverage)
  add_link_options(--coverage)
endif()

find_program(BOOTSTRAP_CCACHE ccache)
if(BOOTSTRAP_CCACHE)
  # What several build folders compile alike, as for packages, is compiled once; its debug information names one of them.
  set(CMAKE_C_COMPILER_LAUNCHER env CCACHE_NOHASHDIR=1 CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} ${BOOTSTRAP_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_C_COMPILER_LAUNCHER})
endif()
