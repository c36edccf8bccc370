// Lists and deletes models that pages store by the option `cache`.

import { platform } from '../../common/platform.js';
import { deleteModel, listModels } from '../../storage/stored_models.js';
import { storageEstimate } from '../../storage/quota.js';

export const models = {
  list: listModels,
  /** @param {string} url */
  delete: async (url) => deleteModel(platform.address(url)),
  room: storageEstimate,
};
