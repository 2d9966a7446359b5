# cmake --install: headers, the static library, find_package(deltawire); lab/ adds the binary.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/deltawire)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/deltawire DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)
install(FILES ${PROJECT_SOURCE_DIR}/deploy/systemd/deltawire-follow@.service
              ${PROJECT_SOURCE_DIR}/deploy/systemd/deltawire-serve@.service DESTINATION lib/systemd/system)
install(FILES ${PROJECT_SOURCE_DIR}/deploy/systemd/deltawire.conf DESTINATION lib/sysusers.d)
install(TARGETS deltawire EXPORT deltawire ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT deltawire NAMESPACE deltawire:: FILE deltawire-targets.cmake DESTINATION ${package_dir})

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/deltawire-config.cmake.in
                              deltawire-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(deltawire-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/deltawire-config.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/deltawire-config-version.cmake DESTINATION ${package_dir})
