"""llmcalc: roofline estimates of LLM inference."""
