// SPDX-License-Identifier: GPL-2.0
/*
 * The registry of provider modules.
 */
#include <linux/module.h>

#include "surface.h"

static DEFINE_MUTEX(providers_lock);
static LIST_HEAD(providers);

/**
 * peerdma_provider_register() - registers a provider that pins by CUDA pointer
 * @provider: valid until peerdma_provider_unregister()
 *
 * The provider that was registered first is used. May sleep.
 *
 * Return: 0.
 */
int peerdma_provider_register(struct peerdma_provider *provider)
{
	mutex_lock(&providers_lock);
	list_add_tail(&provider->link, &providers);
	mutex_unlock(&providers_lock);
	return 0;
}
EXPORT_SYMBOL_GPL(peerdma_provider_register);

/**
 * peerdma_provider_unregister() - undoes peerdma_provider_register()
 * @provider: it has no pins left, since each holds its module. May sleep
 */
void peerdma_provider_unregister(struct peerdma_provider *provider)
{
	mutex_lock(&providers_lock);
	list_del(&provider->link);
	mutex_unlock(&providers_lock);
}
EXPORT_SYMBOL_GPL(peerdma_provider_unregister);

/**
 * peerdma_provider_take_gpu() - finds the provider that pins by CUDA pointer
 *
 * Without a provider for a GPU the pointer must be to page-locked host memory, as on a Jetson.
 *
 * Return: the provider; the caller drops the reference to its module.
 */
const struct peerdma_provider *peerdma_provider_take_gpu(void)
{
	const struct peerdma_provider *found = &peerdma_pages;
	struct peerdma_provider *provider;

	mutex_lock(&providers_lock);
	list_for_each_entry(provider, &providers, link) {
		if (try_module_get(provider->owner)) {
			found = provider;
			break;
		}
	}
	if (found == &peerdma_pages)
		__module_get(THIS_MODULE);
	mutex_unlock(&providers_lock);
	return found;
}

/**
 * peerdma_provider_names() - lists the providers
 * @text: their names, separated by spaces
 * @size: bytes of @text
 *
 * Return: whether there is one for a GPU.
 */
bool peerdma_provider_names(char *text, size_t size)
{
	struct peerdma_provider *provider;
	bool gpu = false;
	size_t length;

	length = scnprintf(text, size, "%s %s", peerdma_pages.name, peerdma_dmabuf.name);
	mutex_lock(&providers_lock);
	list_for_each_entry(provider, &providers, link) {
		length += scnprintf(text + length, size - length, " %s", provider->name);
		gpu = true;
	}
	mutex_unlock(&providers_lock);
	return gpu;
}
