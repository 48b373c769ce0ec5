# What is installed, and where: a C library with its package files, or, under scikit-build-core, a wheel.
if(DEFINED SKBUILD)
    # The Python sources come by wheel.packages of pyproject.toml.
    install(TARGETS enigma LIBRARY DESTINATION enigma NAMELINK_SKIP)
    if(TARGET _enigma)
        install(TARGETS _enigma LIBRARY DESTINATION enigma)
    endif()
    if(TARGET enigma_tool)
        # From <prefix>/bin to the package, as pip lays both out (Debian's own Python says dist-packages).
        set(python_lib "$ORIGIN/../lib/python${Python_VERSION_MAJOR}.${Python_VERSION_MINOR}")
        set_target_properties(enigma_tool PROPERTIES
            INSTALL_RPATH "${python_lib}/site-packages/enigma;${python_lib}/dist-packages/enigma")
        install(TARGETS enigma_tool RUNTIME DESTINATION ${SKBUILD_SCRIPTS_DIR})
    endif()
    return()
endif()

include(CMakePackageConfigHelpers)
set(enigma_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/enigma)

install(TARGETS enigma EXPORT enigma_targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES include/enigma.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT enigma_targets NAMESPACE enigma:: DESTINATION ${enigma_cmake_dir})
if(TARGET enigma_tool)
    file(RELATIVE_PATH bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
    set_target_properties(enigma_tool PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
    install(TARGETS enigma_tool RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

configure_package_config_file(cmake/enigma-config.cmake.in ${PROJECT_BINARY_DIR}/enigma-config.cmake
                              INSTALL_DESTINATION ${enigma_cmake_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/enigma-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/enigma-config.cmake ${PROJECT_BINARY_DIR}/enigma-config-version.cmake
        DESTINATION ${enigma_cmake_dir})

# The prefix of enigma.pc is found from where the file lies, so the installed tree can be moved.
set(enigma_pc_dir ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH enigma_pc_to_prefix ${enigma_pc_dir} ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" enigma_pc_to_prefix "${enigma_pc_to_prefix}")
configure_file(cmake/enigma.pc.in ${PROJECT_BINARY_DIR}/enigma.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/enigma.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
