/* Diagnostics, only where ENIGMA_LOG asks for them; to standard error, a line each. */
#ifndef ENI_BASE_LOG_H
#define ENI_BASE_LOG_H

enum eni_log_level { ENI_LOG_ERROR = 1, ENI_LOG_WARN = 2, ENI_LOG_INFO = 3, ENI_LOG_DEBUG = 4 };

void eni_log(enum eni_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
