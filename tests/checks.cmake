# Rules of the house that a script can hold, and the header and the installed tree as a user compiles them.

set(scripts ${PROJECT_SOURCE_DIR}/scripts)
set(instrument_flags ${enigma_instrument})
list(JOIN instrument_flags " " instrument_flags)
set(no_leaks "")
if(ENIGMA_SANITIZE MATCHES "address")
    set(no_leaks "ASAN_OPTIONS=detect_leaks=0")
endif()

enigma_add_test(lint.layers LABELS lint COMMAND ${Python_EXECUTABLE} ${scripts}/check_layers.py)
enigma_add_test(lint.docs LABELS lint COMMAND ${Python_EXECUTABLE} ${scripts}/check_docs.py)
enigma_add_test(lint.reference LABELS lint COMMAND ${Python_EXECUTABLE} ${scripts}/gen_reference.py --check)
enigma_add_test(lint.exports LABELS lint COMMAND ${Python_EXECUTABLE} ${scripts}/check_exports.py $<TARGET_FILE:enigma>)

enigma_add_test(header.compiles LABELS install ENVIRONMENT ${no_leaks}
    COMMAND ${Python_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/header/run.py ${PROJECT_SOURCE_DIR}/include
            $<TARGET_FILE:enigma> "--flags=${instrument_flags}")
enigma_add_test(install.consumer LABELS install ENVIRONMENT ${no_leaks}
    COMMAND ${Python_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/install/run.py ${CMAKE_COMMAND} ${PROJECT_BINARY_DIR}
            ${CMAKE_C_COMPILER} "--flags=${instrument_flags}")
