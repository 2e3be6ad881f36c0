# How other builds find the installed library: a CMake package and a pkg-config file.
include(CMakePackageConfigHelpers)
set(_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/slurm-bootstrap)

install(EXPORT slurm-bootstrap NAMESPACE slurm-bootstrap:: FILE slurm-bootstrap-config.cmake
        DESTINATION ${_package_dir} COMPONENT development)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/slurm-bootstrap-config-version.cmake
                                 COMPATIBILITY SameMajorVersion)
install(FILES ${PROJECT_BINARY_DIR}/slurm-bootstrap-config-version.cmake DESTINATION ${_package_dir}
        COMPONENT development)

# Relative to the file itself, so that it is right wherever `cmake --install --prefix` puts it.
file(RELATIVE_PATH BOOTSTRAP_PREFIX_FROM_PC /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(${PROJECT_SOURCE_DIR}/scripts/cmake/bootstrap.pc.in ${PROJECT_BINARY_DIR}/bootstrap.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/bootstrap.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
